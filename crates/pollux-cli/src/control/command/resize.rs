//! `pollux disk resize`.

use serde_json::{Value, json};

use super::listed::{Error, Listed};
use crate::control::client::{named, post};

/// Makes a disk `bytes` large; without a size, has its daemon read how large it has become.
pub fn resize(listed: &Listed, bytes: Option<u64>) -> Result<Listed, Error> {
    let path = format!("/v1/disks/{}/resize", listed.disk.name);
    let body = bytes.map_or_else(
        || json!({}),
        |bytes: u64| -> Value { json!({ "bytes": bytes }) },
    );
    let disk =
        post(&listed.control, &path, &body).map_err(|error| named(&listed.control, &error))?;
    Ok(Listed {
        control: listed.control.clone(),
        disk,
    })
}
