//! The device end: a disk served to virtual machines over vhost-user.
//!
//! [`Workers`] are the threads that move requests; [`serve`] runs one frontend's session over a [`Device`]. The hot
//! path is `worker: turn` → `session_queues: turn` → `take` → the disk's channel → `requests: finish` →
//! `publish`. Nothing on it allocates or logs; it takes no lock, except for what a `file` disk hands to its threads. It
//! reads the clock only when there is nothing to do, when a call is due or waits, and for limits and times.
//!
//! Where it is decided: to ask for kicks in `Queue::arm` and to suppress them in `Queue::disarm` (`queue`), by a worker
//! before and after `Worker::sleep` (`worker`); to poll or to sleep in `Policy::after_turn` (`poll`); to call the
//! driver now or later in `Queue::publish` (`queue/publish`); which status byte a request ends with in
//! `Queue::complete` (`queue/requests`). A flush becomes an `fdatasync` in `Backing::put_on_storage` of `pollux-disk`
//! (`file/backing`).
//!
//! The process must ignore SIGPIPE, as a program with a Rust `main` does: a frontend may leave, or stop reading a pipe
//! that it is called through.

mod device;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inflight;
mod limits;
mod log_quotas;
mod notify;
mod observe;
mod poll;
mod queue;
mod session;
mod tuning;
mod worker;

pub use device::{Device, Options};
pub use inflight::{Inflight, Record, RecordError};
pub use limits::{Limited, Limiter, Limits, Rate};
pub use observe::{Extent, Observation, Trace, Traced};
pub use poll::{Bounds, Policy, Polling, Progress, Wait};
pub use session::{Refusal, serve};
pub use tuning::{Calls, Kicks, Signal, Tuning};
pub use worker::Workers;
