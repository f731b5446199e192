//! A disk in a file or on a block device, served by a pool of threads.
//!
//! It is correct, durable and needs nothing but threads. `open` finds out what the file is, `backing`
//! does the operations, `sync` decides what is durable, `pool` runs it all.

mod backing;
mod bounce;
mod open;
mod pool;
mod sync;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use backing::Backing;
use pool::Pool;

use crate::inbox::{Address, Inbox};
use crate::{
    Armed, Channel, Completion, Disk, Events, Geometry, OpenError, Options, Queued, Request,
    WaitPoint,
};

/// What lies between a write and the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Nothing: the page cache is bypassed (`O_DIRECT`). The storage may still have a cache of its own,
    /// which a flush empties.
    None,
    /// The page cache, which a flush empties.
    #[default]
    Writeback,
    /// The page cache, which every write empties of itself before it completes.
    Writethrough,
}

/// As many operations of one disk run at once.
pub const MAX_THREADS: usize = 16;

/// A regular file or a block device.
///
/// Its channels share up to [`MAX_THREADS`] threads, which start on demand, sleep when there is nothing
/// to do, and end when the disk and its channels are dropped.
///
/// - A completed flush, or write with [`Durability::Stable`](crate::Durability), means that the data
///   is on stable storage. Once that has failed it fails for ever, since the kernel forgets: only
///   opening the disk anew helps.
/// - Discarded ranges of a file read as zeroes.
/// - What fails is logged with path and offset, and ends the request alone.
#[derive(Debug)]
pub struct File {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    geometry: Geometry,
    pool: Pool<Job>,
    events: Events,
}

#[derive(Debug)]
struct Job {
    request: Request,
    to: Address,
}

struct FileChannel {
    shared: Arc<Shared>,
    inbox: Inbox,
    staged: Vec<Job>,
    in_flight: usize,
}

impl File {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; each names the path and what can be done.
    pub fn open(
        path: impl AsRef<Path>,
        cache: Cache,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let backing = open::open(path.as_ref(), cache, *options)?;
        Ok(Self::serve(backing))
    }

    fn serve(backing: Backing) -> Self {
        let geometry = backing.geometry;
        let pool = Pool::new(MAX_THREADS, move |Job { request, to }| {
            let result = backing.run(&request.op);
            to.deliver(Completion {
                ticket: request.ticket,
                result,
            });
        });
        let shared = Shared {
            geometry,
            pool,
            events: Events::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Disk for File {
    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        self.shared.pool.ensure_thread()?;
        Ok(Box::new(FileChannel {
            shared: Arc::clone(&self.shared),
            inbox: Inbox::new(wait),
            staged: Vec::new(),
            in_flight: 0,
        }))
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}

impl Channel for FileChannel {
    fn queue(&mut self, request: Request) -> Queued {
        if let Err(failure) = self.shared.geometry.check(&request.op) {
            return Queued::Done(Err(failure));
        }
        let to = self.inbox.address();
        self.staged.push(Job { request, to });
        self.in_flight += 1;
        Queued::Pending
    }

    fn submit(&mut self) {
        if !self.staged.is_empty() {
            self.shared.pool.submit(&mut self.staged);
        }
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.in_flight -= self.inbox.collect(done);
    }

    fn arm(&mut self) -> Armed {
        debug_assert!(self.staged.is_empty(), "submit comes before arm");
        if self.inbox.is_empty() {
            Armed::Idle
        } else {
            Armed::Pending
        }
    }
}

/// Nothing may be in flight: see [`Channel`]. Where something is, its memory is in use, so that this
/// waits for it rather than to let it be unmapped under the kernel's hands.
impl Drop for FileChannel {
    fn drop(&mut self) {
        let left = self.in_flight;
        self.submit();
        while self.in_flight > 0 {
            self.in_flight -= self.inbox.collect(&mut |_| ());
            thread::sleep(Duration::from_millis(1));
        }
        debug_assert!(
            left == 0 || thread::panicking(),
            "a channel was dropped with {left} requests in flight"
        );
    }
}
