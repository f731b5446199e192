//! A disk in a file or on a block device.
//!
//! A request goes one of three ways. What the page cache holds is copied at once (`ready`); what has to
//! be waited for goes through `io_uring` (`transfers`); what `io_uring` would hand to a thread of the
//! kernel anyhow, or cannot do, is done by a thread of our own (`pool`, `backing`). `sync` decides what
//! is durable, `open` finds out what the file is, `channel` puts it together.

mod backing;
mod bounce;
mod calls;
mod channel;
mod counts;
mod format;
mod hold;
mod image;
mod job;
mod limits;
mod lock;
mod loops;
mod nowait;
mod open;
mod pool;
mod ready;
mod registered;
mod resize;
mod settings;
mod shared;
mod size;
mod sync;
mod system;
mod transfers;
mod users;

use std::io;
use std::path::Path;
use std::sync::Arc;

use pollux_memory::Region;

use backing::Backing;
use channel::FileChannel;
use shared::Shared;

use crate::{
    Channel, Disk, Effort, Event, Events, Geometry, OpenError, Options, ResizeError, WaitPoint,
};

pub(crate) use bounce::Buffer;
pub(crate) use calls::fill;
pub(crate) use image::Raw;
pub(crate) use lock::may_append;
pub(crate) use pool::Pool;
pub use settings::{Buffers, Cache, Engine, Format, Inline, Locked, Settings};
pub(crate) use size::{size, warn_of_rest, whole_blocks};
pub use users::{Conflict, Holder};

pub use shared::MAX_THREADS;

/// A regular file or a block device.
///
/// Each channel has an `io_uring` of its own; where there is none, and for what it cannot do, channels
/// share up to [`MAX_THREADS`] threads, which start on demand, sleep when there is nothing to do, and end
/// when the disk and its channels are dropped.
///
/// - A completed flush, or write with [`Durability::Stable`](crate::Durability), means that the data
///   is on stable storage. Once that has failed it fails for ever, since the kernel forgets: only
///   opening the disk anew helps.
/// - It is locked as QEMU locks its images: one writer, or any number of readers; with
///   [`Locked::Running`] from [`Disk::acquire`] to [`Disk::release`] only. What it acquires holds all that was
///   written before, wherever; its size is read again.
/// - With [`Format::Probe`] it is no image of another format, and does not become one.
/// - Discarded ranges of a file read as zeroes; those of a block device as anything.
/// - What fails is logged with path and offset, and ends the request alone.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
}

impl File {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; each names the path and what can be done.
    pub fn open(
        path: impl AsRef<Path>,
        settings: impl Into<Settings>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::new(open::open(path.as_ref(), settings.into(), *options)?)
    }

    /// Takes a file or block device that is open already. `path` is what it is called. Whether it bypasses the page
    /// cache is set as `settings` say, for all that share the open file.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; [`OpenError::Permission`] where it is not open for what `options` ask.
    pub fn adopt(
        file: std::fs::File,
        path: impl AsRef<Path>,
        settings: impl Into<Settings>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        Self::new(open::adopt(file, path.as_ref(), settings.into(), *options)?)
    }

    fn new(backing: Backing) -> Result<Self, OpenError> {
        if let Ok(size) = size(&backing.file) {
            warn_of_rest(&backing.path, size, backing.as_opened.block);
        }
        Self::of(backing)
    }

    fn of(backing: Backing) -> Result<Self, OpenError> {
        Ok(Self {
            shared: Arc::new(Shared::new(backing)?),
        })
    }
}

impl Disk for File {
    fn geometry(&self) -> Geometry {
        self.shared.backing.geometry()
    }

    fn effort(&self) -> Effort {
        self.shared.backing.effort()
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(FileChannel::new(shared, wait)?))
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        match &self.shared.registered {
            Some(registered) => registered.map(region),
            None => Ok(()),
        }
    }

    fn unmap(&self, region: &Arc<Region>) {
        if let Some(registered) = &self.shared.registered {
            registered.unmap(region);
        }
    }

    fn acquire(&self) -> io::Result<()> {
        let before = self.geometry();
        self.shared.backing.acquire().map_err(io::Error::other)?;
        if self.geometry() != before {
            self.shared.events.tell(Event::Changed);
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        self.shared.backing.release()
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        if self.shared.backing.resize(bytes)? {
            self.shared.events.tell(Event::Changed);
        }
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.totals.named()
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}
