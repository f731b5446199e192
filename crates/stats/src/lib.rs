//! Counters for every kick, call, poll, turn and batch.
//!
//! A queue's worker counts into a [`QueueStats`] while others read it; a reader takes a
//! [`Snapshot`], and works with differences and sums of those. Counting costs a load and a store.
#![forbid(unsafe_code)]

mod counter;
mod latency;
mod queue;
mod report;
mod snapshot;
mod stopwatch;
mod worker;

pub use counter::{Counter, Distribution, Gauge, Histogram};
pub use latency::{Latencies, Times};
pub use queue::{Kind, Outcome, QueueStats};
pub use snapshot::{Outcomes, Requests, Snapshot};
pub use stopwatch::{Stopwatch, Waiting};
pub use worker::{WorkerSnapshot, WorkerStats};
