//! What is noted of requests while a client asks for it.

use std::ops::RangeInclusive;

use pollux::device;
use pollux::stats::{Kind, Outcome, Times};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long requests of one kind took, since that is counted.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Latency {
    /// What they asked for.
    pub op: String,
    /// How many there were.
    pub count: u64,
    /// The sum of their times, in nanoseconds.
    pub sum_ns: u64,
    /// Their times, shortest first; those that none had are left out.
    pub buckets: Vec<Bucket>,
}

/// Requests that took about as long.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
pub struct Bucket {
    /// They took no longer than this, in nanoseconds, and four fifths of it at least; null: half a minute or more.
    pub to_ns: Option<u64>,
    /// How many there were.
    pub count: u64,
}

/// For how many seconds requests are traced: longer is told by counters.
pub const TRACED_SECONDS: RangeInclusive<u64> = 1..=3600;
/// How many requests are kept of a trace: 12 MiB at most, which are told in some 40 MB of JSON. How many clients are told
/// that at once, the server bounds.
pub const TRACED_RECORDS: RangeInclusive<usize> = 1..=1 << 18;

/// Which requests are to be traced.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceOrder {
    /// Those of so many seconds from now on; by default 10.
    pub seconds: Option<u64>,
    /// The last so many of them; by default 65536.
    pub records: Option<usize>,
}

/// A trace of a disk's requests.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TraceState {
    /// Are requests still traced?
    pub running: bool,
    /// For how many seconds they are, or were.
    pub seconds: u64,
    /// When it was started, in nanoseconds of Unix time.
    pub started_unix_ns: u64,
    /// How many requests are kept at most.
    pub records: usize,
    /// How many were traced.
    pub traced: u64,
    /// How many of those are lost, because later ones took their places.
    pub lost: u64,
}

/// A request that was traced, as a line of JSON. Never what was read or written.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
pub struct TracedRequest {
    /// How many ended before it; where numbers are missing, requests were lost.
    pub number: u64,
    /// When it was found in the queue's ring, in nanoseconds since the trace was started.
    pub at_ns: u64,
    /// How long it took until the driver was shown its end, in nanoseconds.
    pub took_ns: u64,
    /// The queue.
    pub queue: u16,
    /// What it asked for.
    pub op: String,
    /// Where it begins, in sectors of 512 bytes.
    pub sector: u64,
    /// How many bytes it is about; 0 where it is about none.
    pub bytes: u64,
    /// How it ended: ok, error or unsupported.
    pub result: String,
}

/// What a kind of request is called here.
pub const fn op(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Flush => "flush",
        Kind::GetId => "get_id",
        Kind::Discard => "discard",
        Kind::WriteZeroes => "write_zeroes",
        Kind::Unknown => "unknown",
    }
}

impl Latency {
    /// `None`: there were no such requests.
    pub fn of(kind: Kind, times: &Times) -> Option<Self> {
        let counted = times.buckets.iter().enumerate();
        let counted = counted.filter(|(_, count)| **count > 0);
        let buckets: Vec<_> = counted
            .map(|(at, count)| Bucket {
                to_ns: Times::bound_ns(at),
                count: *count,
            })
            .collect();
        (!buckets.is_empty()).then(|| Self {
            op: op(kind).to_owned(),
            count: times.count(),
            sum_ns: times.sum_ns,
            buckets,
        })
    }
}

impl From<&device::Trace> for TraceState {
    fn from(trace: &device::Trace) -> Self {
        let started = trace.started().duration_since(std::time::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos();
        let traced = trace.traced();
        Self {
            running: !trace.is_over(),
            seconds: trace.time().as_secs(),
            started_unix_ns: u64::try_from(started).unwrap_or(u64::MAX),
            records: trace.capacity(),
            traced,
            lost: traced.saturating_sub(trace.kept()),
        }
    }
}

impl From<&device::Traced> for TracedRequest {
    fn from(traced: &device::Traced) -> Self {
        let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let result = match traced.outcome {
            Outcome::Ok => "ok",
            Outcome::IoErr => "error",
            Outcome::Unsupp => "unsupported",
        };
        Self {
            number: traced.number,
            at_ns: ns(traced.found),
            took_ns: ns(traced.took),
            queue: traced.queue,
            op: op(traced.kind).to_owned(),
            sector: traced.extent.at / 512,
            bytes: traced.extent.bytes,
            result: result.to_owned(),
        }
    }
}
