//! Images in a Ceph cluster as disks: `rbd:pool=rbd,image=disk`.
//!
//! The protocol is Ceph's own `librbd`, which is loaded when the first such disk is opened: a program without Ceph
//! starts, and says which package is missing when an image is asked for. It works with Ceph 16.2 and newer.
//!
//! ```text
//!   worker: queue() ── rbd_aio_readv(guest memory) ──> threads of librbd ──> cluster
//!           reap() <── inbox <── wake-up, if it sleeps <── callback <────────────┘
//!
//!   blocking thread (one a disk): open, lock, size, close: everything that blocks
//! ```
//!
//! - `library`: what of librbd and librados is called; the only place that knows their symbols.
//! - `cluster`, `image`: a connection, shared by disks of one configuration and user; an image that is open.
//! - `aio`: requests in flight, from the call to the callback.
//! - `disk`, `channel`, `shared`: the disk, its channels, and what they have together.
//! - `blocking_thread`: the thread on which everything happens that blocks. Threads that librbd starts are its
//!   children, so they are confined as it is.
//! - `lock`: which client may write.
#![deny(unsafe_code)]

mod aio;
mod blocking_thread;
mod channel;
mod cluster;
mod disk;
mod error;
mod image;
mod library;
mod lock;
mod shared;

use std::sync::Arc;

use pollux_disk::spec::Rbd;
use pollux_disk::{Disk, OpenError, Options};

pub use cluster::reads;
pub use disk::Image;
pub use error::RbdError;

/// Opens the image that `spec` names.
///
/// # Errors
///
/// [`OpenError::Rbd`] with an [`RbdError`] below, [`OpenError::BlockSize`], [`OpenError::PartialBlock`].
pub fn open(spec: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
    Ok(Arc::new(Image::open(spec, options)?))
}
