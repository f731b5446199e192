//! `pollux disk resize`.

use serde_json::json;

use super::listed::{Error, Listed};
use crate::control::client::post;

/// Makes a disk `bytes` large; without a size, has its daemon read how large it has become.
pub fn resize(listed: &Listed, bytes: Option<u64>) -> Result<Listed, Error> {
    let path = format!("/v1/disks/{}/resize", listed.disk.name);
    let body = bytes.map_or_else(|| json!({}), |bytes| json!({ "bytes": bytes }));
    listed.told(post(&listed.control, &path, &body))
}
