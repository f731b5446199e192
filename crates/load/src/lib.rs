//! Loads on a disk, for `pollux bench`, the benchmarks and the tests.
//!
//! ```text
//! Pattern   which request is next: direction, block, completion
//! Client    one queue with a buffer for each request: our driver (`own`), or any other
//! Job       keeps requests in flight by the clock: a rate or as many as fit, verification, latencies of all kinds
//! Closed    keeps requests in flight without reading the clock, for where the client limits what is measured
//! ```

// All errors here are the machine's or the server's, and all of them end the load.
#![allow(clippy::missing_errors_doc, clippy::must_use_candidate)]

mod arrivals;
mod client;
mod closed;
mod job;
mod latency;
mod own;
mod pattern;
mod plan;
mod stop;
mod task;
mod verify;

pub use client::{Ask, Client};
pub use closed::{Closed, Timer};
pub use job::{Job, JobError, Measured, nanoseconds};
pub use latency::{Direction, Histogram, Latencies, Split, histogram, microseconds};
pub use own::{Buffers, Lend, Mixed, Own, Waits};
pub use pattern::{Order, Pattern};
pub use plan::{Idle, Plan};
pub use stop::{Live, Stop};
pub use task::Task;
pub use verify::Mismatch;
