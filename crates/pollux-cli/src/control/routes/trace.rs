//! `/v1/disks/NAME/trace`: the requests of a disk, one by one, for some time.

use std::fmt::Write;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use pollux::device::Trace;

use super::answers::{Answer, JSON, named, object, respond, written};
use crate::control::state::State;
use crate::model::{
    Problem, Refused, TRACED_RECORDS, TRACED_SECONDS, TraceOrder, TraceState, TracedRequest,
};

/// For how long requests are traced, if nothing is said.
const SECONDS: u64 = 10;
/// How many are kept, if nothing is said: 3 MiB.
const RECORDS: usize = 1 << 16;

/// Traces the requests of a disk from now on, and throws an earlier trace away.
#[utoipa::path(
    put, path = "/v1/disks/{name}/trace", params(("name" = String, Path, description = "The disk's name")),
    request_body = Option<TraceOrder>,
    responses(
        (status = 200, body = TraceState),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "It is not traced like that"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk")
    )
)]
pub fn put(state: &State, name: &str, body: &[u8]) -> Result<TraceState, Refused> {
    let served = named(state, name)?;
    let order: TraceOrder = if body.is_empty() {
        TraceOrder::default()
    } else {
        let remedy = "send {\"seconds\": 10, \"records\": 65536}, or no body";
        object(body, remedy)?
    };
    let seconds = order.seconds.unwrap_or(SECONDS);
    let records = order.records.unwrap_or(RECORDS);
    if !TRACED_SECONDS.contains(&seconds) {
        let remedy = format!("name 1 to {} seconds", TRACED_SECONDS.end());
        let problem = Problem::bad_request(format!("{seconds} seconds are not traced"), &remedy);
        return Err(problem.of("seconds").into());
    }
    if !TRACED_RECORDS.contains(&records) {
        let remedy = format!("name 1 to {} records", TRACED_RECORDS.end());
        let problem = Problem::bad_request(format!("{records} records are not kept"), &remedy);
        return Err(problem.of("records").into());
    }
    let observation = served.device.observation();
    let trace = observation.start_trace(Duration::from_secs(seconds), records);
    Ok(TraceState::from(&*trace))
}

/// Ends a trace and throws it away; without one, does nothing.
#[utoipa::path(
    delete, path = "/v1/disks/{name}/trace", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 204, description = "There is none any more"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk")
    )
)]
pub fn delete(state: &State, name: &str) -> Result<Answer, Refused> {
    named(state, name)?.device.observation().drop_trace();
    Ok(respond(StatusCode::NO_CONTENT, JSON, Bytes::new()))
}

/// How far a trace has come.
#[utoipa::path(
    get, path = "/v1/disks/{name}/trace", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 200, body = TraceState),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk, or no trace of it")
    )
)]
pub fn get(state: &State, name: &str) -> Result<TraceState, Refused> {
    Ok(TraceState::from(&*trace(state, name)?))
}

/// The requests that were traced so far, a line of JSON for each.
#[utoipa::path(
    get, path = "/v1/disks/{name}/trace/jsonl", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 200, body = TracedRequest, content_type = "application/jsonl"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk, or no trace of it")
    )
)]
pub fn jsonl(state: &State, name: &str) -> Result<Answer, Refused> {
    let mut lines = Vec::new();
    for traced in trace(state, name)?.records() {
        lines.extend(written(&TracedRequest::from(&traced)));
        lines.push(b'\n');
    }
    Ok(respond(StatusCode::OK, "application/jsonl", lines.into()))
}

/// The requests that were traced so far, as `blkparse` prints them.
#[utoipa::path(
    get, path = "/v1/disks/{name}/trace/blkparse", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 200, body = String, content_type = "text/plain; charset=utf-8"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk, or no trace of it")
    )
)]
pub fn blkparse(state: &State, name: &str) -> Result<Answer, Refused> {
    let trace = trace(state, name)?;
    let text = as_blkparse(&trace);
    Ok(respond(
        StatusCode::OK,
        "text/plain; charset=utf-8",
        text.into(),
    ))
}

fn trace(state: &State, name: &str) -> Result<std::sync::Arc<Trace>, Refused> {
    let served = named(state, name)?;
    served.device.observation().trace().ok_or_else(|| {
        let detail = format!("`{name}` was not traced");
        let remedy = format!("PUT /v1/disks/{name}/trace starts a trace");
        Problem::not_found(detail, &remedy).into()
    })
}

/// Two lines for each request, as `blkparse` prints them by default: queued, and complete. What is a processor there is
/// the queue.
fn as_blkparse(trace: &Trace) -> String {
    let records = trace.records();
    let mut events = Vec::with_capacity(2 * records.len());
    for traced in &records {
        events.push((traced.found, 'Q', traced));
        events.push((traced.found.saturating_add(traced.took), 'C', traced));
    }
    events.sort_by_key(|(at, event, traced)| (*at, *event == 'C', traced.number));
    let mut text = String::new();
    for ((at, event, traced), line) in events.into_iter().zip(1..) {
        let request = TracedRequest::from(traced);
        let (seconds, rest) = (at.as_secs(), at.subsec_nanos());
        let (queue, sector) = (request.queue, request.sector);
        let does = match &*request.op {
            "read" => "R",
            "write" => "W",
            "flush" => "F",
            "discard" => "D",
            "write_zeroes" => "WZ",
            _ => "N",
        };
        let about = match request.bytes {
            0 => String::new(),
            bytes => format!(" {sector} + {}", bytes / 512),
        };
        let end = match (event, &*request.result) {
            ('Q', _) => "pollux".to_owned(),
            (_, "ok") => "0".to_owned(),
            (_, result) => result.to_owned(),
        };
        let written = writeln!(
            text,
            "  0,0   {queue:>2} {line:>8} {seconds:>5}.{rest:09}     0  {event} {does:>3}{about} [{end}]"
        );
        written.expect("a string takes all");
    }
    let TraceState { traced, lost, .. } = trace.into();
    let written = writeln!(text, "\nTotal: {traced} requests, of which {lost} are lost");
    written.expect("a string takes all");
    text
}
