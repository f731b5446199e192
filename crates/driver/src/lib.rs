//! The driver end of virtio-blk in user space: opens vhost-user-blk disks from any program.
//!
//! ```no_run
//! use pollux_disk::{Disk, Durability};
//! use pollux_driver::{CompletionMode, Driver};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = Driver::builder("pollux.sock").connect()?;
//! println!("{} bytes", disk.geometry().bytes);
//! let queue = disk.queue(0)?; // shared by any number of threads and tasks
//! let mut block = disk.allocate(4096)?; // memory that the server uses in place
//! block.write(0, b"hello");
//! let block = queue.write(0, block, Durability::Volatile, CompletionMode::Polled).wait()?;
//! let block = queue.read(0, block, CompletionMode::Call).await?; // or .wait(), or poll with .is_done()
//! # drop(block);
//! # Ok(())
//! # }
//! ```
//!
//! Every request says how its end is to be noticed: by polling ([`CompletionMode::Polled`]), or by a call of
//! the device's ([`CompletionMode::Call`]). Both kinds share a queue. A queue is used in one of two ways:
//!
//! - a [`Channel`] has one owner and no lock; a [`Waiter`] waits for it, polled, by calls, or for as long
//!   as polling pays and then by calls;
//! - a [`Queue`] is shared: by threads that block, by pollers, by tasks (whose event loop drives a
//!   [`Readiness`]) and by channels, all at the same time.
//!
//! A server that closes the connection, because it was restarted or has crashed, is waited for, and the server that
//! comes back is handed what was in flight ([`Reconnect`]): the program notices nothing but a delay.
//!
//! Where it is decided: to turn the device's calls on or off in `CallPolicy::wanted` (`notify/call_policy`), and done
//! in `Switchboard` (`shared/switchboard`) or `Channel` (`exclusive/channel`); to kick in `DriverEnd::publish` of
//! `pollux-ring`, and done there, too, by the `Doorbell` (`notify/doorbell`); to poll or to sleep in `Polling::empty`
//! (`notify/polling`).
//!
//! A [`Driver`] is a [`Disk`](pollux_disk::Disk), so that all that stacks over disks stacks over it.
#![cfg_attr(
    loom,
    allow(
        dead_code,
        reason = "loom runs the shared queue without what is around it"
    )
)]

#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod connection;
mod counters;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod driver;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod exclusive;
#[cfg(not(loom))]
mod memory;
mod notify;
mod options;
#[cfg(not(loom))]
mod requests;
mod shared;
mod sync;

// The tests in here serve disks with what the others are served by.
#[cfg(test)]
extern crate self as pollux_driver;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

#[cfg(not(loom))]
pub use builder::Builder;
pub use counters::Counters;
#[cfg(not(loom))]
pub use driver::Driver;
#[cfg(not(loom))]
pub use error::{ConnectError, Difference, Lost, Nonsense};
#[cfg(not(loom))]
pub use exclusive::channel::Channel;
#[cfg(not(loom))]
pub use exclusive::waiter::{Waiter, Waiting};
#[cfg(not(loom))]
pub use memory::buffer::Buffer;
#[cfg(not(loom))]
pub use memory::data::Data;
pub use options::{CompletionMode, Options, Reconnect};
#[doc(hidden)]
pub use options::{Experiment, KickLock, Mixed};
#[cfg(not(loom))]
pub use requests::hybrid::Hybrid;
#[cfg(not(loom))]
pub use shared::channel::SharedChannel;
pub use shared::lock::LockTimes;
#[cfg(not(loom))]
pub use shared::pending::{Failed, Pending};
#[cfg(not(loom))]
pub use shared::queue::Queue;
#[cfg(not(loom))]
pub use shared::readiness::Readiness;
#[cfg(all(feature = "tokio", not(loom)))]
pub use shared::tokio::Driving;

/// The shared queue without ring and descriptors, for loom to run.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::counters::Counts;
    pub use crate::notify::call::{Call, EventFd};
    pub use crate::notify::call_policy::CallPolicy;
    pub use crate::shared::completion_state::CompletionState;
    pub use crate::shared::listeners::{Listener, Point};
    pub use crate::shared::parker::CallSleeper;
    pub use crate::shared::parts::{Ends, Owner, Transport};
    pub use crate::shared::room::Turn;
    pub use crate::shared::switchboard::Switchboard;
    pub use crate::shared::wakeups::Wakeups;
}
