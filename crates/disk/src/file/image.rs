//! A file that holds an image of another format, whose reader decides what lies where.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_memory::Spans;

use super::job::Job;
use super::open::open;
use super::sync::{Joined, Settle, Waiter};
use super::system::{Coherence, coherence};
use super::{File, Settings, Shared};
use crate::inbox::Address;
use crate::{Access, Durability, Failure, Op, OpenError, Options, Ticket};

/// As large as a disk may be: how much of it there is, the reader of the image knows.
const ENDLESS: u64 = 1 << 62;

/// A file, as threads that may block use it.
#[derive(Clone, Debug)]
pub(crate) struct Raw(Arc<Shared>);

impl File {
    /// Opens the image at `path`: its bytes are what they are, and it may get longer.
    pub(crate) fn open_image(
        path: &Path,
        settings: Settings,
        options: &Options,
    ) -> Result<(Self, Raw), OpenError> {
        let file = Self::of(open(path, settings, *options)?)?;
        let raw = Raw(Arc::clone(&file.shared));
        raw.0.backing.bytes.store(ENDLESS, Ordering::Relaxed);
        Ok((file, raw))
    }
}

impl Raw {
    /// The file once more, which does not bypass the page cache.
    pub(crate) fn cached(&self) -> io::Result<fs::File> {
        use std::os::fd::AsRawFd;

        let writes = self.0.backing.as_opened.access == Access::ReadWrite;
        // What it is called now: it may have been renamed since.
        let name = format!("/proc/self/fd/{}", self.0.backing.file.as_raw_fd());
        fs::File::options().read(true).write(writes).open(name)
    }

    /// What it lies on, if another machine could write it without being seen here.
    pub(crate) fn others_write_unseen(&self) -> Option<&'static str> {
        match coherence(self.0.backing.kind, &self.0.backing.file) {
            Coherence::AllWrites => None,
            Coherence::OwnWrites(storage) => Some(storage),
        }
    }

    /// It is used from now on: see [`Disk::acquire`](crate::Disk::acquire).
    pub(crate) fn acquire(&self) -> io::Result<()> {
        self.0.backing.acquire().map_err(io::Error::other)?;
        self.0.backing.bytes.store(ENDLESS, Ordering::Relaxed);
        Ok(())
    }

    /// It is used no more: see [`Disk::release`](crate::Disk::release).
    pub(crate) fn release(&self) -> io::Result<()> {
        self.0.backing.release()
    }

    /// Writes `from`, which may block.
    pub(crate) fn write(&self, at: u64, from: Spans) -> Result<(), Failure> {
        let durability = Durability::Volatile;
        self.0.backing.run(&Op::Write {
            at,
            from,
            durability,
        })
    }

    /// The range is not needed any more.
    pub(crate) fn discard(&self, at: u64, len: u64) -> Result<(), Failure> {
        self.0.backing.run(&Op::Discard { at, len })
    }

    /// Has all that was written delivered as stable; is anything going to be?
    ///
    /// A thread of the file's syncs: the caller would have to go on for others, as long as some come.
    pub(crate) fn settle(&self, ticket: Ticket, to: Address) -> io::Result<bool> {
        let Shared { backing, pool, .. } = &*self.0;
        if backing.settles(&Op::Flush) == Settle::Done {
            return Ok(false);
        }
        pool.ensure_thread()?;
        match backing.sync.join(Waiter { ticket, to }) {
            Joined::Leader => pool.submit(&mut vec![Job::Sync]),
            Joined::Follower => {}
            Joined::Failed(error) => return Err(error.into()),
        }
        Ok(true)
    }
}
