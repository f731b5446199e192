//! The driver end of virtio-blk in user space: opens vhost-user-blk disks from any program.

mod options;

pub use options::{Completion, KickLock, Mixed, Options};
