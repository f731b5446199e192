//! A piece of memory that the device can read and write.

use std::fmt;
use std::sync::Arc;

use offset_allocator::Allocation;
use pollux_memory::Span;

use crate::arena::Arena;

/// Memory that the device knows: requests in it are not copied. It starts at a page.
///
/// What it holds at first is undefined: zeroes, or what an earlier buffer of this process held. There is
/// no `&[u8]` to it, because the device may write to it at any moment: it is copied in and out. It goes
/// back to its disk's pool when it is dropped, and may outlive the disk. Once the device is gone, which may
/// still write to what it had in use, nothing goes back.
pub struct Buffer {
    arena: Arc<Arena>,
    /// `None` once retired.
    pages: Option<Allocation>,
    span: Span,
}

impl Buffer {
    pub(crate) fn new(arena: Arc<Arena>, pages: Allocation, len: usize) -> Self {
        let span = arena.span(pages, len);
        Self {
            arena,
            pages: Some(pages),
            span,
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

    /// All of it, to lend to a request that ends before the buffer is dropped.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Copies what is at `at` into all of `into`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.part(at, into.len()).read(into);
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
    pub(crate) fn retire(mut self) {
        if self.pages.take().is_some() {
            self.arena.retire(self.span.len());
        }
    }

    fn part(&self, at: usize, len: usize) -> Span {
        let Some(part) = self.span.slice(at, len) else {
            panic!("{len} bytes at {at} of a buffer of {}", self.len());
        };
        part
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.arena.free(pages, self.span.len());
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.span).finish()
    }
}
