//! `pollux disk limit`.

use serde_json::{Map, Value, json};

use super::listed::{Error, Listed};
use crate::control::client::{get, patch};
use crate::control::table::{Align, table};
use crate::limits::changes;
use crate::model::Disk;
use crate::units::{bytes, float};

/// Changes the limits of a disk as `words` say; without any, tells what they are.
pub fn change(listed: &Listed, words: &[String]) -> Result<Listed, Error> {
    let limits = match words {
        [] => {
            let path = format!("/v1/disks/{}", listed.disk.name);
            return listed.told(get(&listed.control, &path));
        }
        [word] if word == "none" => Value::Null,
        words => changes(words.iter().flat_map(|words| words.split(',')))?
            .into_iter()
            .map(|(field, number)| (field, number.into()))
            .collect::<Map<_, _>>()
            .into(),
    };
    patched(listed, &json!({ "limits": limits }))
}

/// Has the times of requests counted, or not.
pub fn latencies(listed: &Listed, wanted: bool) -> Result<Listed, Error> {
    patched(listed, &json!({ "latencies": wanted }))
}

/// Whether they are counted, for people.
pub fn told(disk: &Disk) -> String {
    let how = if disk.latencies {
        "are counted: `pollux top` shows them"
    } else {
        "are not counted"
    };
    format!("times of requests of {} {how}\n", disk.name)
}

fn patched(listed: &Listed, change: &Value) -> Result<Listed, Error> {
    let path = format!("/v1/disks/{}", listed.disk.name);
    listed.told(patch(&listed.control, &path, change))
}

/// The limits of a disk, for people.
pub fn show(disk: &Disk) -> String {
    let row = |(word, number): (String, u64)| {
        let number = if word.starts_with("bps") {
            bytes(float(number))
        } else {
            number.to_string()
        };
        [disk.name.clone(), word, number]
    };
    let rows: Vec<_> = disk.limits.by_word().into_iter().map(row).collect();
    if rows.is_empty() {
        return format!("{} has no limits\n", disk.name);
    }
    let heads = [
        ("DISK", Align::Left),
        ("LIMIT", Align::Left),
        ("VALUE", Align::Right),
    ];
    table(heads, &rows)
}
