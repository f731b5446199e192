//! A piece of memory that the device can read and write: from the pool, or the caller's own.
//!
//! Both are one type, so whatever takes a buffer takes either, with one rule for ownership: a request has it
//! until it has ended. Parts are split off and never overlap, so no two requests have the same bytes.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use offset_allocator::Allocation;
use pollux_memory::{Region, Span};

use crate::memory::arena::Arena;

/// Memory that the device knows: requests in it are not copied.
///
/// It comes from the disk's pool ([`Driver::allocate`](crate::Driver::allocate)), or is the caller's own
/// ([`Driver::register`](crate::Driver::register)). Requests take it and give it back; one whose
/// [`Pending`](crate::Pending) is dropped keeps it until it has ended. There is no `&[u8]` to it, because the
/// device may write to it at any moment: it is copied in and out.
///
/// What the pool gives starts at a page and holds what an earlier buffer of this process held, or zeroes. It
/// goes back when it and all that was split off it are dropped, and may outlive the disk. Once the device is
/// gone, which may still write to what it had in use, nothing goes back.
pub struct Buffer {
    /// All parts of what was once one buffer share it.
    backing: Arc<Backing>,
    span: Span,
}

/// Whose memory it is.
enum Backing {
    Pool(Pages),
    /// The caller's own, which stays mapped for as long as there is a part of it.
    Registered {
        region: Arc<Region>,
        /// With which device; no other region can have its address meanwhile.
        with: Weak<dyn Any + Send + Sync>,
    },
}

/// Memory of the pool's, which goes back when this is dropped.
struct Pages {
    arena: Arc<Arena>,
    allocation: Allocation,
    len: usize,
    /// The device may write to it for ever: it does not go back.
    retired: AtomicBool,
}

impl Buffer {
    pub(crate) fn new(arena: Arc<Arena>, pages: Allocation, len: usize) -> Self {
        // SAFETY: the home has the arena, and frees the pages when the last part of the buffer is gone. All access to
        // the span borrows a part, or is by promise (`Buffer::span`).
        let span = unsafe { arena.span(pages, len) };
        let backing = Arc::new(Backing::Pool(Pages {
            arena,
            allocation: pages,
            len,
            retired: AtomicBool::new(false),
        }));
        Self { backing, span }
    }

    /// All of `region`, which was shared with `device` and which has no other owner.
    pub(crate) fn registered<D>(region: Arc<Region>, device: &Arc<D>) -> Self
    where
        D: Any + Send + Sync,
    {
        // SAFETY: as in `new`, with the region in the arena's place.
        let span = unsafe { region.span() };
        let with: Weak<D> = Arc::downgrade(device);
        let backing = Arc::new(Backing::Registered { region, with });
        Self { backing, span }
    }

    /// The region that was registered with `device`, if this is the last part of it.
    pub(crate) fn into_registered<D>(self, device: &Arc<D>) -> Result<Arc<Region>, Self> {
        let Self { backing, span } = self;
        match Arc::try_unwrap(backing) {
            Ok(Backing::Registered { region, with })
                if ptr::addr_eq(with.as_ptr(), Arc::as_ptr(device)) =>
            {
                Ok(region)
            }
            Ok(backing) => Err(Self {
                backing: Arc::new(backing),
                span,
            }),
            Err(backing) => Err(Self { backing, span }),
        }
    }

    /// Keeps the first `at` bytes; the rest is a buffer of its own.
    ///
    /// # Panics
    ///
    /// When `at` is beyond the end.
    #[must_use = "what was split off would be lost to this buffer"]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len(), "a buffer of {} split at {at}", self.len());
        let (first, rest) = self.span.split_at(at);
        self.span = first;
        Self {
            backing: Arc::clone(&self.backing),
            span: rest,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.span.len()
    }

    /// Has it no bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// The addresses that it has in this process.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let start = self.span.as_ptr().addr();
        start..start + self.span.len()
    }

    /// All of it, to lend to a request of a channel.
    ///
    /// The requests of a [`Queue`](crate::Queue) take the buffer itself. Here it takes a promise:
    ///
    /// ```no_run
    /// # fn example(disk: pollux_driver::Driver) -> Result<(), Box<dyn std::error::Error>> {
    /// let block = disk.allocate(4096)?;
    /// // SAFETY: the buffer is kept until after the last use of the span.
    /// let span = unsafe { block.span() };
    /// span.write(&[1; 4096]);
    /// drop(block);
    /// # Ok(())
    /// # }
    /// ```
    /// ```compile_fail,E0133
    /// # fn example(disk: pollux_driver::Driver) -> Result<(), Box<dyn std::error::Error>> {
    /// let block = disk.allocate(4096)?;
    /// let span = block.span();
    /// drop(block);
    /// span.write(&[1; 4096]); // into the next one's memory
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// The buffer is kept until the span is used no more, nor a copy or part of it, nor what was made of those
    /// ([`Span::new`]): until the request that it is lent to has ended.
    #[must_use]
    pub unsafe fn span(&self) -> Span {
        self.span
    }

    /// Copies what is at `at` into all of `into`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end, or if the memory was registered, and a page of it cannot be had
    /// ([`Driver::register`](crate::Driver::register)): what was read there is not what the device wrote.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.part(at, into.len()).read(into);
        assert!(
            !self.is_torn(),
            "registered memory is gone: its file was cut, or has no room for all of it"
        );
    }

    /// Is it registered memory of which a page could not be had?
    pub(crate) fn is_torn(&self) -> bool {
        matches!(&*self.backing, Backing::Registered { region, .. } if region.is_torn())
    }

    /// Overwrites what is at `at` with all of `from`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        self.part(at, from.len()).write(from);
    }

    /// Gives it up for good: its memory is never handed out again. For memory that a faulty device may
    /// still write to, whenever it likes.
    pub(crate) fn retire(self) {
        match &*self.backing {
            Backing::Pool(pages) => pages.retired.store(true, Ordering::Relaxed),
            // This part has no other owner, and is given to none again.
            Backing::Registered { .. } => {}
        }
    }

    fn part(&self, at: usize, len: usize) -> Span {
        let Some(part) = self.span.slice(at, len) else {
            panic!("{len} bytes at {at} of a buffer of {}", self.len());
        };
        part
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            self.arena.retire(self.len);
        } else {
            self.arena.free(self.allocation, self.len);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.span).finish()
    }
}
