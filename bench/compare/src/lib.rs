//! Competitors of single crates, beside ours on the same work.
//!
//! `ring`: the device's end of a split virtqueue, ours ([`Pollux`]) and that of the crate
//! `virtio-queue` ([`VirtioQueue`]), each over a mapping of its own of the same memory ([`Guest`]); and what the
//! in-flight record adds to ours ([`Recorded`]).

mod guest;
mod pollux;
mod recorded;
mod virtio_queue;

pub use guest::{Guest, Kind, RING, WRITTEN};
pub use pollux::Pollux;
pub use recorded::Recorded;
pub use virtio_queue::VirtioQueue;

/// A buffer of a chain as the device finds it: where it is mapped, and how long it is.
pub trait Part {
    /// Where it is mapped, and how long it is.
    fn place(&self) -> (*mut u8, usize);
}

/// A device's end of the ring in a [`Guest`].
pub trait Device {
    /// What its rows are called.
    const NAME: &'static str;
    /// How it tells of a buffer.
    type Part: Part;

    /// Opens the ring.
    fn open(guest: &Guest) -> Self;

    /// Takes `batch` chains, resolves their buffers to memory, hands each chain to `each` (its
    /// readable and its writable parts) and then back to the driver. Tells whether the driver is to
    /// be called.
    fn turn(&mut self, batch: u16, each: impl FnMut(u16, &[Self::Part], &[Self::Part])) -> bool;
}
