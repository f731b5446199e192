//! The pool that buffers come from: a few large arenas.
//!
//! It has one arena to begin with and adds more as they fill up. A memfd is sparse, so what an arena costs is a slot in
//! the server's table of regions; hence few large ones. None is given back before the pool is dropped: the
//! memory of freed buffers is the memory of the next.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_memory::Region;

use crate::memory::arena::{Arena, Retired};
use crate::memory::buffer::Buffer;
use crate::memory::memfd::memfd_region;

/// How large an arena is, unless a single buffer is larger.
const ARENA_BYTES: usize = 64 << 20;

/// How large the only arena is. It is sparse, and costs nothing until it is used.
const SOLE_ARENA_BYTES: usize = 1 << 30;

/// There is no further arena.
#[derive(Debug, thiserror::Error)]
#[error("no memory for buffers beyond what is in use")]
struct NotGrown {
    source: io::Error,
}

/// Makes a region known to the device.
pub(crate) type Register = dyn Fn(&Arc<Region>) -> io::Result<()> + Send + Sync;

/// Hands out buffers. Any thread may ask, and buffers may outlive the pool.
pub struct Pool {
    register: Box<Register>,
    arena_bytes: usize,
    arenas: Mutex<Vec<Arc<Arena>>>,
    retired: Arc<Retired>,
}

impl Pool {
    /// A pool whose arenas are made known to the device by `register`. The first is added when the first
    /// buffer is asked for.
    pub(crate) fn new(register: Box<Register>) -> Self {
        Self::with_arenas_of(ARENA_BYTES, register)
    }

    /// The same, with the first arena there from the beginning: what users share takes no room from it.
    ///
    /// # Errors
    ///
    /// As for [`Pool::allocate`].
    pub(crate) fn with_first(register: Box<Register>) -> io::Result<Self> {
        let pool = Self::new(register);
        let first = pool.grow(1)?;
        pool.lock().push(first);
        Ok(pool)
    }

    /// A pool of one large arena, which is made now and never followed by another.
    ///
    /// # Errors
    ///
    /// As for [`Pool::allocate`].
    pub(crate) fn of_one(register: Box<Register>) -> io::Result<Self> {
        let refuse: Box<Register> = Box::new(|_| {
            let message = "the server cannot be told of more memory while its queues run";
            Err(io::Error::new(io::ErrorKind::QuotaExceeded, message))
        });
        let mut pool = Self::with_arenas_of(SOLE_ARENA_BYTES, register);
        let first = pool.grow(1)?;
        pool.lock().push(first);
        pool.register = refuse;
        Ok(pool)
    }

    /// Is it one of a single arena?
    pub(crate) fn is_of_one(&self) -> bool {
        self.arena_bytes == SOLE_ARENA_BYTES
    }

    fn with_arenas_of(arena_bytes: usize, register: Box<Register>) -> Self {
        Self {
            register,
            arena_bytes,
            arenas: Mutex::default(),
            retired: Arc::default(),
        }
    }

    /// A buffer of `len` bytes that starts at a page, and has its pages to itself. It holds zeroes or
    /// what a buffer before it held.
    ///
    /// # Errors
    ///
    /// When all arenas are full and there cannot be another: the server takes no more regions, or the
    /// machine lacks address space or file descriptors.
    pub(crate) fn allocate(&self, len: usize) -> io::Result<Buffer> {
        let pages = pages(len)?;
        let mut arenas = self.lock();
        // The newest first: it has the most room.
        let found = arenas
            .iter()
            .rev()
            .find_map(|arena| Some((arena, arena.take(pages)?)));
        if let Some((arena, pages)) = found {
            return Ok(Buffer::new(Arc::clone(arena), pages, len));
        }
        let arena = self.grow(pages)?;
        let taken = arena
            .take(pages)
            .expect("a new arena has room for what it was made for");
        arenas.push(Arc::clone(&arena));
        drop(arenas);
        Ok(Buffer::new(arena, taken, len))
    }

    /// How many bytes have been retired: lost to this process until the pool and all buffers are gone.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.bytes()
    }

    /// The device is gone, but may still write to what is in use now. Its users hear of that
    /// after this, and what they give back is not handed out again.
    pub(crate) fn give_up(&self) {
        self.retired.all();
    }

    /// A new arena with room for a buffer of `pages`.
    fn grow(&self, pages: u32) -> io::Result<Arc<Arena>> {
        // The allocator searches only where any piece would do, in classes of sizes: a single free piece of
        // just the right size may not be found.
        let needed = offset_allocator::ext::min_allocator_size(pages);
        let usual = self::pages(self.arena_bytes)?;
        let pages = needed.max(usual);
        let bytes = usize::try_from(pages)
            .ok()
            .and_then(|pages| pages.checked_mul(rustix::param::page_size()))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let region = memfd_region("pollux-buffers", bytes)?;
        (self.register)(&region)
            .map_err(|source| io::Error::new(source.kind(), NotGrown { source }))?;
        Ok(Arc::new(Arena::new(
            region,
            pages,
            Arc::clone(&self.retired),
        )))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Arena>>> {
        self.arenas
            .lock()
            .expect("nothing panics while searching for room")
    }
}

/// How many pages hold `len` bytes. An empty buffer has one too, so that no two are at the same place.
fn pages(len: usize) -> io::Result<u32> {
    let pages = len.div_ceil(rustix::param::page_size()).max(1);
    // The allocator counts in 32 bits, and rounds up by an eighth at most.
    u32::try_from(pages)
        .ok()
        .filter(|&pages| pages <= u32::MAX / 2)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("arenas", &self.lock().len())
            .field("retired", &self.retired())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
