//! The device end: a disk served to virtual machines over vhost-user.
//!
//! [`Workers`] are the threads that move requests; [`serve`] runs one frontend's session over a
//! [`Device`]. The hot path is `worker: turn` → `share: turn` → `queue: take` → the disk's channel →
//! `queue: finish` → `queue: publish`. Nothing on it allocates, locks or logs, and it reads the clock
//! only when there is nothing to do.
//!
//! The process must ignore SIGPIPE, as a program with a Rust `main` does: a frontend may have its queues
//! called through a pipe, and stop reading it.

mod active;
mod arrival;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod bare;
mod cache;
mod call;
mod config;
mod device;
mod dirty;
mod inflight;
mod kick;
mod lines;
mod notifier;
mod padded;
mod poll;
mod queue;
mod refusal;
mod request;
mod server;
mod session;
mod share;
mod tuning;
mod vring;
mod watchdog;
mod worker;
mod workers;

pub use device::{Device, Options};
pub use inflight::{Inflight, Record, RecordError};
pub use poll::{Bounds, Policy, Polling, Progress, Wait};
pub use refusal::Refusal;
pub use server::serve;
pub use tuning::{Calls, Kicks, Signal, Tuning};
pub use workers::Workers;
