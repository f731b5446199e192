//! A file that holds an image of another format, whose reader decides what lies where.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_memory::Spans;

use super::backing::Backing;
use super::sync::{Joined, Settle, Waiter};
use super::{File, Settings};
use crate::inbox::Address;
use crate::{Access, Durability, Failure, Op, OpenError, Options, Ticket};

/// As large as a disk may be: how much of it there is, the reader of the image knows.
const ENDLESS: u64 = 1 << 62;

/// A file, as threads that may block use it.
#[derive(Clone, Debug)]
pub(crate) struct Raw(Arc<Backing>);

impl File {
    /// Opens the image at `path`: its bytes are what they are, and it may get longer.
    pub(crate) fn open_image(
        path: &Path,
        settings: Settings,
        options: &Options,
    ) -> Result<(Self, Raw), OpenError> {
        let file = Self::open(path, settings, options)?;
        let raw = Raw(Arc::clone(&file.shared.backing));
        raw.0.bytes.store(ENDLESS, Ordering::Relaxed);
        Ok((file, raw))
    }
}

impl Raw {
    /// The file once more, which does not bypass the page cache.
    pub(crate) fn cached(&self) -> io::Result<fs::File> {
        use std::os::fd::AsRawFd;

        let writes = self.0.as_opened.access == Access::ReadWrite;
        // What it is called now: it may have been renamed since.
        let name = format!("/proc/self/fd/{}", self.0.file.as_raw_fd());
        fs::File::options().read(true).write(writes).open(name)
    }

    /// Writes `from`, which may block.
    pub(crate) fn write(&self, at: u64, from: Spans) -> Result<(), Failure> {
        let durability = Durability::Volatile;
        self.0.run(&Op::Write {
            at,
            from,
            durability,
        })
    }

    /// The range is not needed any more.
    pub(crate) fn discard(&self, at: u64, len: u64) -> Result<(), Failure> {
        self.0.run(&Op::Discard { at, len })
    }

    /// Has all that was written delivered as stable; is anything going to be?
    pub(crate) fn settle(&self, ticket: Ticket, to: Address) -> io::Result<bool> {
        if self.0.settles(&Op::Flush) == Settle::Done {
            return Ok(false);
        }
        match self.0.settle(Waiter { ticket, to }) {
            Joined::Leader | Joined::Follower => Ok(true),
            Joined::Failed(error) => Err(error.into()),
        }
    }
}
