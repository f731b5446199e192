//! Memory that the device knows, carved into pages.
//!
//! An arena is a memfd, mapped and registered once, and an allocator over its pages.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use offset_allocator::{Allocation, Allocator};
use pollux_memory::{Region, Span};

/// The most pieces of an arena: bounds what the allocator's own table takes, for huge arenas.
const MAX_PIECES: u32 = 128 << 10;

/// One registered region.
pub(crate) struct Arena {
    region: Arc<Region>,
    pages: Mutex<Allocator>,
    retired: Arc<Retired>,
}

/// What is never handed out again.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    bytes: AtomicU64,
    /// Nothing that is given back from now on is used again.
    all: AtomicBool,
}

impl Retired {
    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whatever is given back from now on is lost.
    pub(crate) fn all(&self) {
        self.all.store(true, Ordering::Release);
    }
}

impl Arena {
    /// One of `pages`, all of them free.
    pub(crate) fn new(region: Arc<Region>, pages: u32, retired: Arc<Retired>) -> Self {
        // One node for each buffer, and one for what is free between two: at worst one a page.
        let most = pages.saturating_add(2).min(MAX_PIECES);
        Self {
            region,
            pages: Mutex::new(Allocator::with_max_allocs(pages, most)),
            retired,
        }
    }

    /// So many pages in a row, if there are some.
    pub(crate) fn take(&self, pages: u32) -> Option<Allocation> {
        self.lock().allocate(pages)
    }

    /// The `len` bytes that start with the first page of `pages`.
    ///
    /// # Safety
    ///
    /// The arena is kept, and `pages` are not freed, until the span is used no more ([`Span::new`]).
    pub(crate) unsafe fn span(&self, pages: Allocation, len: usize) -> Span {
        // SAFETY: by this function's own promise: the arena keeps the region.
        let all = unsafe { self.region.span() };
        usize::try_from(pages.offset)
            .ok()
            .and_then(|page| page.checked_mul(rustix::param::page_size()))
            .and_then(|at| all.slice(at, len))
            .expect("what the allocator hands out lies inside the arena")
    }

    /// Takes back the `len` bytes in `pages`.
    pub(crate) fn free(&self, pages: Allocation, len: usize) {
        if self.retired.all.load(Ordering::Acquire) {
            self.retire(len);
        } else {
            self.lock().free(pages);
        }
    }

    /// Counts `len` bytes that are never freed.
    pub(crate) fn retire(&self, len: usize) {
        self.retired.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Allocator> {
        self.pages
            .lock()
            .expect("the allocator does not panic over its own pieces")
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Arena").field(&self.region).finish()
    }
}
