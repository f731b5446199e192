//! The reading side of a lane: polls, takes, and says whether it wants to be woken.

use std::marker::PhantomData;
use std::sync::atomic::AtomicPtr;

use pollux_memory::Side;

use crate::fault::PeerFault;
use crate::index::RingIndex;
use crate::lane::{Armed, Lane, Suppression};
use crate::sync::{AtomicU16, Ordering};
use crate::wire::Entry;

/// Takes the entries of one lane.
#[derive(Debug)]
pub struct Reader<E: Entry> {
    lane: Lane<E>,
    next: RingIndex,
    /// The writer's index as of the last poll.
    seen: RingIndex,
    /// The wish that stands: to be woken by the entry at this index.
    armed: Option<RingIndex>,
}

impl<E: Entry> Reader<E> {
    /// The reader of a lane, awake, which takes entry `next` first.
    #[must_use]
    pub fn new(lane: Lane<E>, next: RingIndex) -> Self {
        // With EVENT_IDX the flags must be 0 (2.7.10.1), whatever the ring's memory held before.
        if lane.suppression() == Suppression::EventIdx {
            lane.clear_flags();
        }
        let mut reader = Self {
            lane,
            next,
            seen: next,
            armed: None,
        };
        reader.go_on_with(next);
        reader
    }

    /// Takes entry `next` first from now on, awake.
    pub fn go_on_with(&mut self, next: RingIndex) {
        (self.next, self.seen, self.armed) = (next, next, None);
        self.lane.decline(next);
    }

    /// Loads the writer's index, once, and tells how many entries can be taken.
    ///
    /// # Errors
    ///
    /// When the index is further ahead than the ring is long.
    #[inline]
    pub fn look(&mut self) -> Result<u16, PeerFault> {
        // The index before the entries: pairs with the release in `Writer::publish`.
        let idx = RingIndex(u16::from_le(self.lane.idx().load(Ordering::Acquire)));
        let ahead = idx.since(self.next);
        if ahead > self.lane.size() {
            return Err(PeerFault::IndexJump {
                jump: ahead,
                size: self.lane.size(),
            });
        }
        self.seen = idx;
        Ok(ahead)
    }

    /// Takes the next of the entries that the last [`Reader::look`] saw.
    #[inline]
    pub fn take(&mut self) -> Option<E> {
        if self.next == self.seen {
            return None;
        }
        let entry = E::load(self.lane.slot(self.next));
        self.next = self.next.plus(1);
        Some(entry)
    }

    /// Gives the entry back that was taken last, by a reader that is awake: it is the next one again.
    pub fn give_back(&mut self) {
        debug_assert!(self.armed.is_none(), "a wish is for the next entry");
        self.next = self.next.plus(u16::MAX);
    }

    /// Asks to be woken by the next entry, then polls once more.
    ///
    /// After [`Armed::Pending`] the owner takes what is there, and arms again before it sleeps: an
    /// entry published before the wish was stored never fires it.
    ///
    /// # Errors
    ///
    /// As for [`Reader::look`].
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        self.lane.ask(self.next);
        self.armed = Some(self.next);
        // Pairs with the fence in `Writer::publish`.
        Side::Reader.full_fence();
        Ok(if self.look()? > 0 {
            Armed::Pending
        } else {
            Armed::Idle
        })
    }

    /// Asks not to be woken. Costs nothing when it was not armed.
    #[inline]
    pub fn disarm(&mut self) {
        if self.armed.take().is_some() {
            self.lane.decline(self.next);
        }
    }

    /// Will the next entry wake this reader? False once an entry has been taken since it armed: with
    /// `EVENT_IDX` a wish is good for one entry only.
    #[inline]
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed == Some(self.next)
    }

    /// The index of the entry to be taken next.
    #[must_use]
    pub fn next(&self) -> RingIndex {
        self.next
    }

    /// A view of the lane's index for threads that do not own the reader.
    #[must_use]
    pub fn index_view(&self) -> IndexView<E> {
        IndexView::at(&self.lane)
    }
}

/// A lane's index as it is seen without its [`Reader`], so that a thread with nothing to take need not ask for
/// the reader, which may be behind a lock.
///
/// When the ring is laid out anew elsewhere, it [follows](IndexView::follow) there, while others poll.
#[derive(Debug)]
pub struct IndexView<E: Entry> {
    idx: AtomicPtr<AtomicU16>,
    lane: PhantomData<fn() -> E>,
}

impl<E: Entry> IndexView<E> {
    fn at(lane: &Lane<E>) -> Self {
        Self {
            idx: AtomicPtr::new(std::ptr::from_ref(lane.idx()).cast_mut()),
            lane: PhantomData,
        }
    }

    /// From now on this sees what `other` sees. The memory of before stays mapped all the same, as
    /// another thread may be polling it.
    pub fn follow(&self, other: &IndexView<E>) {
        let there = other.idx.load(Ordering::Relaxed);
        self.idx.store(there, Ordering::Release);
    }

    /// Has the writer published more than the entries before `next`? What it publishes right after
    /// this is found by the next poll.
    #[inline]
    #[must_use]
    pub fn sees_more_than(&self, next: RingIndex) -> bool {
        // Relaxed: the thread that takes the entries polls again, with acquire.
        let idx = self.idx.load(Ordering::Acquire);
        // SAFETY: it came from a lane, whose maker keeps the word mapped and aligned for as long as a
        // view of its reader lives, wherever that has followed to since (`Lane::new`).
        let idx = unsafe { &*idx };
        RingIndex(u16::from_le(idx.load(Ordering::Relaxed))) != next
    }
}
