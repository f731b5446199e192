//! `PATCH /v1/disks/NAME`: what of a disk can be changed while it runs.

use serde_json::Value;

use super::answers::{named, object};
use crate::control::state::State;
use crate::limits::DiskLimits;
use crate::model::{Disk, DiskChange, Problem, Refused};

/// Changes a disk: what is absent stays, and what is null is lifted (RFC 7396).
#[utoipa::path(
    patch, path = "/v1/disks/{name}", params(("name" = String, Path, description = "The disk's name")),
    request_body(content = DiskChange, content_type = "application/merge-patch+json"),
    responses(
        (status = 200, body = Disk, description = "The disk as it is now"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "This cannot be set"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk")
    )
)]
pub async fn patch(state: &State, name: &str, body: &[u8]) -> Result<Disk, Refused> {
    limit(state, name, body)?;
    if let Some(opener) = state.opener() {
        opener.keep().await?;
    }
    Ok(named(state, name)?.disk())
}

/// Changes the limits of a disk, and whether times are counted: all of it or nothing.
fn limit(state: &State, name: &str, body: &[u8]) -> Result<(), Refused> {
    let served = named(state, name)?;
    let limiter = served.device.limiter();
    let change: DiskChange = object(
        body,
        "send {\"limits\": {\"iops_total\": 5000}} or {\"latencies\": true}",
    )?;
    let merged = match change.limits {
        // Nothing is said of them.
        None => limiter.limits().into(),
        Some(Value::Null) => DiskLimits::default(),
        Some(change @ Value::Object(_)) => merge(limiter.limits().into(), &change)?,
        Some(_) => {
            let detail = "`limits` is neither an object nor null";
            return Err(
                Problem::bad_request(detail, "send {\"limits\": {\"iops_total\": 5000}}")
                    .of("limits")
                    .into(),
            );
        }
    };
    let limits = merged
        .checked()
        .map_err(|error| Problem::of_limit(&error))?;
    if let Some(wanted) = change.latencies {
        served.device.observation().set_latencies(wanted);
    }
    served.limit(limits);
    state.wake_workers();
    Ok(())
}

/// `limits` with this change. A limit that is lifted takes its burst with it.
fn merge(limits: DiskLimits, change: &Value) -> Result<DiskLimits, Refused> {
    let mut merged = serde_json::to_value(limits).expect("plain structures can be written");
    for (field, number) in change.as_object().into_iter().flatten() {
        // One by one, so that the field is known that is to blame.
        let one = serde_json::json!({ field: number });
        if let Err(error) = serde_json::from_value::<DiskLimits>(one) {
            let remedy =
                "a limit is a whole number from 1 on, or null; its names are in GET /openapi.json";
            return Err(Problem::bad_request(error.to_string(), remedy)
                .of(&format!("limits.{field}"))
                .into());
        }
        merged[field] = number.clone();
        let burst = format!("{field}_max");
        if number.is_null() && !field.ends_with("_max") && change.get(&burst).is_none() {
            merged[burst] = Value::Null;
        }
    }
    let merged = serde_json::from_value(merged);
    merged.map_err(|error| Problem::bad_request(error.to_string(), "send whole numbers").into())
}
