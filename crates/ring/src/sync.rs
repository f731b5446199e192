//! The atomics of the shared words, in one place so that loom's can stand in for them.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU16, AtomicU32, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
