//! The driver end of virtio-blk in user space: opens vhost-user-blk disks from any program.

mod arena;
mod buffer;
mod connection;
mod control;
mod dial;
mod error;
mod fd;
mod memory;
mod negotiate;
mod notice;
mod options;
mod patience;
mod regions;
mod table;

pub use buffer::Buffer;
pub use error::{ConnectError, Lost};
pub use options::{Completion, KickLock, Mixed, Options};
