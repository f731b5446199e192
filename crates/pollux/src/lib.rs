//! Pollux: a virtio-blk stack with both ends of the ring.
//!
//! This crate is the facade: the layers under their short names. [`disk`], [`device`] and [`driver`]
//! are where to start. The program `pollux`, which serves and measures disks, is the crate `pollux-cli`.
//!
//! The features `device` and `driver` are on by default. A program that needs one of them leaves the other out with
//! `default-features = false, features = ["driver"]`.
//!
//! ```
//! use std::sync::Arc;
//! use pollux::device::{Device, Options, Tuning, Workers};
//! use pollux::disk::Spec;
//!
//! let disk = "memory:size=64M".parse::<Spec>()?.open(&pollux::disk::Options::default())?;
//! let options = Options::new("scratch").num_queues(4).serial("scratch-1");
//! let device = Arc::new(Device::new(disk, options));
//! let workers = Arc::new(Workers::start(1, &[], Tuning::default())?);
//! // For each frontend that connects to a socket of yours:
//! //     pollux::device::serve(stream, None, &device, &workers)?;
//! # let _ = (device, workers);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "driver")]
mod drivers;

#[cfg(feature = "driver")]
pub use drivers::Drivers;
pub use pollux_blk as blk;
#[cfg(feature = "device")]
pub use pollux_device as device;
pub use pollux_disk as disk;
#[cfg(feature = "driver")]
pub use pollux_driver as driver;
pub use pollux_memory as memory;
#[cfg(feature = "driver")]
pub use pollux_rbd as rbd;
pub use pollux_ring as ring;
pub use pollux_stats as stats;

/// The programs in the papers compile.
#[cfg(doctest)]
mod papers {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/library.md")]
    struct Library;
}
