//! `pollux disk trace`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Args;
use hyper::body::Bytes;
use rustix::thread::{Timespec, nanosleep};
use serde_json::json;
use signal_hook::flag;

use super::listed::{Error, Listed};
use crate::control::client::{NoAnswer, delete, get, named, put, text};
use crate::model::{TRACED_RECORDS, TRACED_SECONDS, TraceState};
use crate::process::{below_zero, from_to};
use crate::signals;

/// Which requests are traced.
#[derive(Args, Debug)]
#[command(mut_args(below_zero))]
pub struct Order {
    /// For how many seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = from_to(TRACED_SECONDS))]
    seconds: u64,

    /// Keep at most this many requests, the last ones
    #[arg(long, value_name = "N", default_value_t = 65536, value_parser = from_to(TRACED_RECORDS))]
    records: usize,
}

/// How long it takes until it is asked again whether the trace has ended. A signal cuts it short.
const PAUSE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Traces a disk for the time that was asked for, or until a signal, and returns what came: a line of JSON for each
/// request, or text as `blkparse` prints it. A second signal does not wait.
pub fn trace(listed: &Listed, order: &Order, lines: bool) -> Result<Bytes, Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals::ending() {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupted))?;
        flag::register(signal, Arc::clone(&interrupted))?;
    }
    let control = &*listed.control;
    let name = &listed.disk.name;
    let path = format!("/v1/disks/{name}/trace");
    let traced = traced(control, &path, order, lines, &interrupted);
    let traced = traced.map_err(|error| named(control, &error))?;
    Ok(traced.ok_or_else(|| {
        format!("another client has started a trace of `{name}` in place of this one; ask again once that has ended")
    })?)
}

/// What came; `None` if another trace has taken its place.
fn traced(
    control: &Path,
    path: &str,
    order: &Order,
    lines: bool,
    interrupted: &AtomicBool,
) -> Result<Option<Bytes>, NoAnswer> {
    let Order { seconds, records } = order;
    let body = json!({ "seconds": seconds, "records": records });
    let mut state: TraceState = put(control, path, &body, None)?;
    let started = state.started_unix_ns;
    while state.running && state.started_unix_ns == started && !interrupted.load(Relaxed) {
        let _ = nanosleep(&PAUSE);
        state = get(control, path)?;
    }
    if state.started_unix_ns != started {
        return Ok(None);
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
    Ok(Some(text))
}
