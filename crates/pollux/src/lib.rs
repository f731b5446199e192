//! Pollux: a virtio-blk stack with both ends of the ring.
//!
//! This crate is the facade: the layers under their short names. [`disk`], [`device`] and [`driver`]
//! are where to start; `pollux serve` is a thin shell around the first two, and `pollux bench` a load for
//! the third.
//!
//! ```
//! use std::sync::Arc;
//! use pollux::device::{Device, Options, Tuning, Workers};
//! use pollux::disk::Spec;
//!
//! let disk = "memory:size=64M".parse::<Spec>()?.open(&pollux::disk::Options::default())?;
//! let name = "scratch".to_owned();
//! let options = Options { name, num_queues: 4, queue_size: 256, serial: "scratch-1".to_owned() };
//! let device = Arc::new(Device::new(disk, options));
//! let workers = Arc::new(Workers::start(1, &[], Tuning::default())?);
//! // For each frontend that connects to a socket of yours:
//! //     pollux::device::serve(stream, None, &device, &workers, Tuning::default())?;
//! # let _ = (device, workers);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attach;
mod bench;
mod claim;
mod cli;
mod confine;
mod cpus;
mod elsewhere;
mod export;
mod file;
mod inherited;
mod log;
mod passed;
mod program;
mod rights;
mod serve;
mod signals;
mod socket;

pub use elsewhere::Drivers;
pub use pollux_blk as blk;
pub use pollux_device as device;
pub use pollux_disk as disk;
pub use pollux_driver as driver;
pub use pollux_memory as memory;
pub use pollux_ring as ring;
pub use pollux_stats as stats;

#[doc(hidden)]
pub use program::main;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod plan;

/// The programs in the papers compile.
#[cfg(doctest)]
mod papers {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/src/library.md")]
    struct Library;
}
