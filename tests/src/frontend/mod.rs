//! A vhost-user frontend by hand, for what libblkio never does: fds left out or exchanged, features
//! left out, rings stopped and started again, memory exchanged under load.
//!
//! It speaks the protocol byte by byte and shares no code with Pollux, neither for the messages nor
//! for the ring: a mistake made on both sides would hide itself. (The crate `vhost` could not do it
//! anyway: it cannot leave out a call fd.)

mod dirty_log;
mod driver;
pub mod feature;
mod guest_memory;
mod inflight;
mod message;
mod queue;
mod raw;
mod round;

pub use dirty_log::{DirtyLog, page};
pub use driver::{Driver, Plan, TWO_QUEUES};
pub use guest_memory::GuestMemory;
pub use inflight::{Inflight, description};
pub use message::{Code, Frontend, NEED_REPLY, REPLY, Region, VERSION, pair};
pub use queue::{
    INDIRECT, Logs, NEXT, PAGE, Part, QUEUE_ENTRIES, Queue, SLOTS, Status, WRITE, add_one, count,
    new_eventfd,
};
pub use raw::{Raw, words};
