//! The split virtqueue (VIRTIO 1.3, section 2.7), written once for both ends.
//!
//! A virtqueue is two *lanes*: the *available* lane carries chain heads from the driver to the
//! device, the *used* lane carries them back. In each, a [`Writer`] owns the entries and the index,
//! and a [`Reader`] answers with `event`: "wake me after this one". [`DriverEnd`] and [`DeviceEnd`]
//! are the two, crossed:
//!
//! | | [`DriverEnd`] | [`DeviceEnd`] |
//! |---|---|---|
//! | holds | `Writer<Head>`, `Reader<UsedElem>`, free list | `Reader<Head>`, `Writer<UsedElem>`, chain walk |
//! | hand over | `stage(..)` … `publish() -> Notify` | `stage(..)` … `publish() -> Notify` |
//! | receive | `look()`, `take()` | `look()`, `take()` |
//! | before sleep | `arm() -> Armed` | `arm() -> Armed` |
//!
//! *Only sleepers are woken*: an end that is awake polls and keeps its notifications off;
//! one that is about to sleep arms, polls again, and sleeps only if that poll was empty.

#[cfg(not(loom))]
mod areas;
#[cfg(not(loom))]
mod chain;
#[cfg(not(loom))]
mod descriptor;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod driver;
mod fault;
mod index;
mod lane;
mod reader;
mod sync;
mod wire;
mod writer;

#[cfg(not(loom))]
pub use areas::{AreaError, Areas, Layout};
#[cfg(not(loom))]
pub use chain::{Chain, MAX_CHAIN};
#[cfg(not(loom))]
pub use descriptor::{DescriptorFlags, descriptor};
#[cfg(not(loom))]
pub use device::DeviceEnd;
#[cfg(not(loom))]
pub use driver::{Buffer, DriverEnd, Refused, Tables, UsedChain};
pub use fault::PeerFault;
pub use index::RingIndex;
pub use lane::{Armed, Lane, Notify, Suppression, Words};
pub use reader::{IndexView, Reader};
pub use wire::{Entry, Head, MAX_SIZE, UsedElem};
pub use writer::Writer;
