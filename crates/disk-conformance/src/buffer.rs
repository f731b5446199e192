//! Memory as a guest has it.

use std::ops::Range;
use std::sync::Arc;

use pollux_memory::{Region, Span, Spans, memfd};

/// A stretch of shared memory, of which some parts are the spans of one request.
pub struct Buffer {
    region: Arc<Region>,
    /// Never changes, so that it can be lent.
    spans: Box<[Span]>,
}

impl Buffer {
    /// `len` bytes in one span, at the start of a page.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::cut(len, &[])
    }

    /// `len` bytes from the start of a page, in several spans, each of which ends at one of `cuts`.
    #[must_use]
    pub fn cut(len: usize, cuts: &[usize]) -> Self {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % len.max(1)).collect();
        cuts.sort_unstable();
        cuts.push(len);
        let mut start = 0;
        let parts = cuts.into_iter().map(|end| {
            let part = start..end;
            start = end;
            part
        });
        Self::parts(len, parts)
    }

    /// A region of `len` bytes of which `parts` are the spans, in this order.
    ///
    /// # Panics
    ///
    /// When the machine is out of memory, or a part is not inside.
    #[must_use]
    pub fn parts(len: usize, parts: impl IntoIterator<Item = Range<usize>>) -> Self {
        let whole = len.max(1);
        let file = memfd("guest", whole).expect("a test has some memory");
        let region = Region::map(file, 0, 0, 0, whole as u64).expect("memory of ours is mapped");
        // SAFETY: the buffer has the region, and every test keeps the buffer until the request that it lends it to
        // has ended.
        let span = unsafe { region.span() };
        let part = |part: Range<usize>| {
            span.slice(part.start, part.len())
                .expect("the parts of a buffer lie inside")
        };
        Self {
            spans: parts.into_iter().map(part).collect(),
            region: Arc::new(region),
        }
    }

    /// One span that holds `bytes`.
    #[must_use]
    pub fn holding(bytes: &[u8]) -> Self {
        let buffer = Self::new(bytes.len());
        buffer.fill(bytes);
        buffer
    }

    /// The region that it lies in: what [`Disk::map`](pollux_disk::Disk::map) is told.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Fills the spans, one after the other.
    ///
    /// # Panics
    ///
    /// Unless there are as many bytes as the spans hold.
    pub fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len(), "as many bytes as the spans hold");
        let mut rest = bytes;
        for span in &self.spans {
            let (now, later) = rest.split_at(span.len());
            span.write(now);
            rest = later;
        }
    }

    /// What the spans hold, one after the other.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        let mut rest = &mut bytes[..];
        for span in &self.spans {
            let (now, later) = rest.split_at_mut(span.len());
            span.read(now);
            rest = later;
        }
        bytes
    }

    fn len(&self) -> usize {
        self.spans.iter().map(|span| span.len()).sum()
    }

    /// Lends the spans: the buffer is kept until the request that has them has ended.
    #[must_use]
    pub fn spans(&self) -> Spans {
        // SAFETY: the list is never changed or moved, and every test keeps the buffer until the
        // request it lends it to has ended.
        unsafe { Spans::new(&self.spans) }
    }
}
