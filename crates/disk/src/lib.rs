//! Disks, and the channels through which they are used.
//!
//! A [`Disk`] is shared; a [`Channel`] has one owner at a time and carries that owner's requests.
//! The vocabulary is that of the rings, one layer up: hand over with [`Channel::queue`] and
//! [`Channel::submit`], poll with [`Channel::reap`], and before sleeping [`Channel::arm`].
//! Nothing here knows of virtio, so stacks of disks are the same over files and over virtqueues.
//!
//! The only `unsafe` here is the promise of each [`Channel`], to use what it was lent no longer than it may, what a
//! channel that lends parts of a request on needs, and discards in an image, which `imago` cannot see to be safe.
#![deny(unsafe_code)]

mod channel;
mod effort;
mod events;
pub mod fault;
pub mod file;
mod geometry;
pub mod inbox;
mod memory;
mod null;
mod options;
mod parts;
pub mod qcow2;
mod quota;
mod resize;
mod rights;
pub mod spec;
pub mod stack;
pub mod wait;

pub use channel::{
    Armed, Channel, Completion, Durability, Failure, Op, Queued, Request, Ticket, Unmap,
};
pub use effort::Effort;
pub use events::{Event, Events, Subscription};
pub use fault::Fault;
pub use file::File;
pub use geometry::{Access, Geometry, RangeLimits};
pub use memory::Memory;
pub use null::Null;
#[doc(hidden)]
pub use options::NO_TILDE;
pub use options::{OpenError, Options};
pub use qcow2::Image;
pub use quota::{Admitted, Quota};
pub use resize::ResizeError;
#[doc(hidden)]
pub use rights::closed_folder;
pub use spec::Spec;
pub use stack::{PollScope, Stack, linear, striped};
pub use wait::WaitPoint;

use std::io;
use std::sync::Arc;

use pollux_memory::Region;

/// Something that stores blocks.
pub trait Disk: Send + Sync {
    /// Its size, its block sizes and what it can do.
    fn geometry(&self) -> Geometry;

    /// Opens a channel whose completions wake `wait` once that has armed.
    ///
    /// # Errors
    ///
    /// What the machine lacks: file descriptors, threads, memory.
    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>>;

    /// What requests cost the thread that queues them: one that has others to serve hands over the large ones piece by
    /// piece.
    fn effort(&self) -> Effort {
        Effort::Everything
    }

    /// Nobody is to wait any more for what is away, such as the server of the disk: requests that do so fail, those in
    /// flight too. It is for a disk that is to end. To most it is nothing.
    fn give_up(&self) {}

    /// Announces memory that requests may point into from now on, until [`Disk::unmap`].
    ///
    /// For disks that register buffers with the kernel, a device or another daemon; to the others it
    /// is nothing.
    ///
    /// # Errors
    ///
    /// Where the region cannot be registered. The requests that point into it must not be queued.
    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        let _ = region;
        Ok(())
    }

    /// Takes [`Disk::map`] back. No request in flight points into the region any more.
    fn unmap(&self, region: &Arc<Region>) {
        let _ = region;
    }

    /// Requests follow, until [`Disk::release`]. For disks that others may use at other times: it keeps
    /// those off; to most it is nothing. It may block. A caller that has it does not ask for it again before the release.
    ///
    /// # Errors
    ///
    /// Where another program uses the disk. No request must be queued.
    fn acquire(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes [`Disk::acquire`] back: nothing is in flight. Where others may use the disk now, all that was
    /// written is on stable storage. It may block.
    ///
    /// # Errors
    ///
    /// Where that failed. Nobody else gets the disk.
    fn release(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes the disk `bytes` large or, without a size, reads how large what it is stored on has become. Requests in
    /// flight go on. [`Event::Changed`] tells of a change, and [`Disk::geometry`] what it is. It may block, also until
    /// requests of others have ended: a thread that has some in flight reaps them first.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Fixed`] unless the disk says otherwise. A disk never gets smaller.
    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        let _ = bytes;
        Err(ResizeError::Fixed)
    }

    /// What it has counted since it was opened, by name: which ways requests went.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Where to subscribe to what happens to the disk itself.
    fn events(&self) -> &Events;
}
