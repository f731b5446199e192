//! The `pollux` program: `pollux serve` is a thin shell around [`pollux::disk`] and [`pollux::device`], and
//! `pollux bench` a load for [`pollux::driver`].
//!
//! It is a library so that what reads its configuration can be called without it. Programs depend on [`pollux`].

mod attach;
mod bench;
mod cli;
mod confine;
mod control;
mod cpus;
mod disks;
mod export;
mod file;
mod limits;
mod log;
mod model;
mod news;
mod paths;
mod process;
mod program;
mod serve;
mod signals;
mod socket;
mod units;

#[doc(hidden)]
pub use program::main;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod plan;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod requests;
