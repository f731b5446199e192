//! The writing side of a lane: stages entries, publishes them together.

use pollux_memory::Side;

use crate::index::RingIndex;
use crate::lane::{Lane, Notify};
use crate::sync::Ordering;
use crate::wire::Entry;

/// Owns the entries and the index of one lane.
#[derive(Debug)]
pub struct Writer<E: Entry> {
    lane: Lane<E>,
    next: RingIndex,
    published: RingIndex,
}

impl<E: Entry> Writer<E> {
    /// The writer of a lane whose index stands at `next`.
    #[must_use]
    pub fn new(lane: Lane<E>, next: RingIndex) -> Self {
        Self {
            lane,
            next,
            published: next,
        }
    }

    /// Puts `entry` into the next slot, which the reader does not read yet.
    ///
    /// The caller sees to it that the ring has room: no more than its size between what is staged and
    /// what the reader has handed back.
    #[inline]
    pub fn stage(&mut self, entry: E) {
        entry.store(self.lane.slot(self.next));
        self.next = self.next.plus(1);
    }

    /// Shows the reader what is staged, if it polls; one that sleeps is not woken before
    /// [`Writer::publish`], which decides for all that was shown since the last.
    ///
    /// A reader that is awake begins while the writer goes on. It costs a store.
    #[inline]
    pub fn show(&mut self) {
        // The entries before the index: pairs with the acquire in `Reader::look`.
        self.lane
            .idx()
            .store(self.next.0.to_le(), Ordering::Release);
    }

    /// How many entries are staged and not published.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> u16 {
        self.next.since(self.published)
    }

    /// Shows the reader everything that is staged, and tells whether it must be woken.
    #[inline]
    pub fn publish(&mut self) -> Notify {
        let old = std::mem::replace(&mut self.published, self.next);
        if old == self.next {
            return Notify::Suppressed;
        }
        self.show();
        // Pairs with the fence in `Reader::arm`: it stores its wish, then loads the index; we stored
        // the index and now load its wish. With a full fence on both sides, one of us sees the other.
        Side::Writer.full_fence();
        if self.lane.wanted(old, self.next) {
            Notify::Needed
        } else {
            Notify::Suppressed
        }
    }

    /// The index of the next entry to be staged.
    #[must_use]
    pub fn next(&self) -> RingIndex {
        self.next
    }
}
