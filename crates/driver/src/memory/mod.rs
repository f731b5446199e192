//! The memory that the device reads and writes, and which owner has which piece of it.

pub mod arena;
pub mod buffer;
pub mod data;
pub mod known_regions;
pub mod memfd;
pub mod pool;
