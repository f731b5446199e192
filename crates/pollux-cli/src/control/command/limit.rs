//! `pollux disk limit`.

use serde_json::{Map, Value, json};

use super::listed::{Error, Listed};
use crate::control::client::{NoAnswer, get, named, patch};
use crate::control::table::{Align, bytes, table};
use crate::limits::change as read;
use crate::model::Disk;

/// Changes the limits of a disk as `words` say; without any, tells what they are.
pub fn change(listed: &Listed, words: &[String]) -> Result<Listed, Error> {
    let path = format!("/v1/disks/{}", listed.disk.name);
    let limits = match words {
        [] => None,
        [word] if word == "none" => Some(Value::Null),
        words => {
            let mut changes = Map::new();
            for word in words {
                let (field, number) = read(word)?;
                changes.insert(field, number.into());
            }
            Some(changes.into())
        }
    };
    match limits {
        None => told(listed, get(&listed.control, &path)),
        Some(limits) => {
            let change = json!({ "limits": limits });
            told(listed, patch(&listed.control, &path, &change))
        }
    }
}

/// Has the times of requests counted, or not.
pub fn latencies(listed: &Listed, wanted: bool) -> Result<Listed, Error> {
    let path = format!("/v1/disks/{}", listed.disk.name);
    let change = json!({ "latencies": wanted });
    told(listed, patch(&listed.control, &path, &change))
}

fn told(listed: &Listed, answer: Result<Disk, NoAnswer>) -> Result<Listed, Error> {
    let disk = answer.map_err(|error| named(&listed.control, &error))?;
    Ok(Listed {
        control: listed.control.clone(),
        disk,
    })
}

/// The limits of a disk, for people.
pub fn show(disk: &Disk) -> String {
    let row = |(word, number): (String, u64)| {
        let number = if word.starts_with("bps") {
            bytes(number)
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
