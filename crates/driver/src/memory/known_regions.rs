//! Which memory the device knows: the whole translation, as it sees memory where we see it.

use std::ops;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_memory::Span;

/// The addresses of one region: from the first up to, not including, the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
}

impl Range {
    fn of(ops::Range { start, end }: ops::Range<usize>) -> Self {
        Self { start, end }
    }

    #[inline]
    fn holds(self, span: Span) -> bool {
        let start = span.as_ptr().addr();
        self.start <= start && start < self.end && span.len() <= self.end - start
    }
}

/// The regions that the device knows at one moment, in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionTable {
    ranges: Vec<Range>,
}

impl RegionTable {
    /// May the device be told to read or write there?
    ///
    /// What stretches over two regions is not held, even if they touch: the device may have them in
    /// different places. An empty span is in no region: it has no address to check.
    pub(crate) fn holds(&self, span: Span) -> bool {
        self.range(span).is_some()
    }

    /// The range that holds it.
    fn range(&self, span: Span) -> Option<Range> {
        let start = span.as_ptr().addr();
        let behind = self.ranges.partition_point(|range| range.start <= start);
        let range = *self.ranges.get(behind.checked_sub(1)?)?;
        range.holds(span).then_some(range)
    }
}

/// The table as it changes. Queues read a copy each, and renew it when told to by one load.
#[derive(Debug, Default)]
pub(crate) struct KnownRegions {
    current: Mutex<Arc<RegionTable>>,
    /// Counts the changes; written with the lock held.
    generation: AtomicU64,
}

/// A queue's copy of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionView {
    table: Arc<RegionTable>,
    generation: u64,
    /// Where it was found last: the next is there as well, as a rule.
    last: Range,
}

impl RegionView {
    /// The table as `known` has it now.
    #[inline]
    pub(crate) fn of(&mut self, known: &KnownRegions) -> &RegionTable {
        // Pairs with the store in `change`: a thread that was told of a region (by whatever means) that
        // was added before sees the generation that it came with.
        if known.generation.load(Ordering::Acquire) != self.generation {
            self.renew(known);
        }
        &self.table
    }

    /// [`RegionTable::holds`], in the table as `known` has it now.
    #[inline]
    pub(crate) fn holds(&mut self, known: &KnownRegions, span: Span) -> bool {
        if known.generation.load(Ordering::Acquire) == self.generation && self.last.holds(span) {
            return true;
        }
        self.find(known, span)
    }

    #[cold]
    fn find(&mut self, known: &KnownRegions, span: Span) -> bool {
        let range = self.of(known).range(span);
        self.last = range.unwrap_or_default();
        range.is_some()
    }

    #[cold]
    fn renew(&mut self, known: &KnownRegions) {
        let current = known.lock();
        self.table = Arc::clone(&current);
        self.last = Range::default();
        self.generation = known.generation.load(Ordering::Relaxed);
    }
}

impl KnownRegions {
    /// The device knows the memory at these addresses from now on.
    pub(crate) fn add(&self, addresses: ops::Range<usize>) {
        let range = Range::of(addresses);
        self.change(|ranges| {
            let at = ranges.partition_point(|other| other.start < range.start);
            ranges.insert(at, range);
        });
    }

    /// The device knows the memory at these addresses no more.
    pub(crate) fn remove(&self, addresses: ops::Range<usize>) {
        let gone = Range::of(addresses);
        self.change(|ranges| ranges.retain(|range| *range != gone));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Range>)) {
        let mut current = self.lock();
        change(&mut Arc::make_mut(&mut current).ranges);
        let next = self.generation.load(Ordering::Relaxed) + 1;
        self.generation.store(next, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<RegionTable>> {
        self.current
            .lock()
            .expect("nothing panics while changing the table")
    }
}

#[cfg(test)]
mod tests;
