//! `pollux disk trace`.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use hyper::body::Bytes;
use serde_json::json;

use super::listed::{Error, Listed};
use crate::control::client::{NoAnswer, delete, get, named, put, text};
use crate::model::{TRACED_RECORDS, TRACED_SECONDS, TraceState};
use crate::process::{below_zero, from_to};

/// Which requests are traced.
#[derive(Args, Debug)]
#[command(mut_args(below_zero))]
pub struct Order {
    /// For how many seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = from_to(TRACED_SECONDS))]
    seconds: u64,

    /// Of how many requests, the last ones, there is room for
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = from_to(TRACED_RECORDS))]
    records: usize,
}

/// Traces a disk for the time that was asked for, and returns what came: a line of JSON for each request, or text as
/// `blkparse` prints it.
pub fn trace(listed: &Listed, order: &Order, lines: bool) -> Result<Bytes, Error> {
    let control = &*listed.control;
    let path = format!("/v1/disks/{}/trace", listed.disk.name);
    Ok(traced(control, &path, order, lines).map_err(|error| named(control, &error))?)
}

fn traced(control: &Path, path: &str, order: &Order, lines: bool) -> Result<Bytes, NoAnswer> {
    let Order { seconds, records } = order;
    let body = json!({ "seconds": seconds, "records": records });
    let mut state: TraceState = put(control, path, &body, None)?;
    let started = state.started_unix_ns;
    while state.running && state.started_unix_ns == started {
        sleep(Duration::from_secs(state.seconds.min(1)));
        state = get(control, path)?;
    }
    if state.started_unix_ns != started {
        tracing::warn!("another client has started a trace of this disk: this is its beginning");
    }
    let format = if lines { "jsonl" } else { "blkparse" };
    let text = text(control, &format!("{path}/{format}"))?;
    delete(control, path)?;
    if state.lost > 0 {
        let (lost, traced) = (state.lost, state.traced);
        tracing::warn!(
            lost,
            traced,
            "more requests came than there was room for: the first are lost; see --records"
        );
    }
    Ok(text)
}
