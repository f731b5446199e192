//! Loads on a disk, for `pollux bench`, the benchmarks and the tests.
//!
//! ```text
//! Pattern   which request is next: direction, block, completion
//! Client    one queue with a buffer for each request: our driver (`own`), or any other
//! Job       keeps requests in flight by the clock: a rate or as many as fit, verification, latencies of all kinds
//! Closed    keeps requests in flight without looking at the clock, for where the client limits what is measured
//! ```

mod arrivals;
mod client;
mod closed;
mod job;
mod latency;
mod own;
mod pattern;
mod stop;
mod task;
mod verify;

pub use client::{Ask, Client};
pub use closed::{Closed, Timer};
pub use job::{Idle, Job, JobError, Measured, Plan, nanoseconds};
pub use latency::{Direction, Histogram, Latencies, Split, histogram, microseconds};
pub use own::{Buffers, Lend, Mixed, Own, Waits};
pub use pattern::{Order, Pattern};
pub use stop::{Live, Stop};
pub use task::Task;
pub use verify::Mismatch;
