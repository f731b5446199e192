//! One lane: entries and an index one way, the wish to be woken the other way.
//!
//! ```text
//!   writer's memory                     reader's memory
//!   ┌───────┬─────┬───────────────┐     ┌───────┬──────────┬───────┐
//!   │ flags │ idx │ entries[size] │ …   │ flags │ …        │ event │
//!   └───────┴──┬──┴───────┬───────┘     └───┬───┴──────────┴───┬───┘
//!              └─ this lane ┘               └─── this lane ────┘
//! ```
//! The specification stores the reader's answer, `event` or the suppressing flag, in the *other* ring,
//! so that each end writes only its own memory. The home of `unsafe` for ring words: nothing else
//! forms a reference to one.

use std::ptr::NonNull;

use crate::index::RingIndex;
use crate::sync::{AtomicU16, Ordering};
use crate::wire::Entry;

/// How a reader says that it does not want to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppression {
    /// By one flag: `VIRTQ_AVAIL_F_NO_INTERRUPT`, `VIRTQ_USED_F_NO_NOTIFY`.
    Flags,
    /// By the entry after which it wants to be woken: `VIRTIO_F_EVENT_IDX`.
    EventIdx,
}

/// Does the other end sleep, so that it must be notified?
#[must_use = "a dropped `Notify` is a lost wakeup"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// It asked to be woken.
    Needed,
    /// It polls.
    Suppressed,
}

/// May this end sleep?
#[must_use = "sleeping on `Pending` strands work"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Nothing is there, and the other end will notify.
    Idle,
    /// Something is there to take.
    Pending,
}

/// The suppressing flag, the same bit in both rings.
const NO_NOTIFY: u16 = 1;

/// One side's handle on a lane.
#[derive(Debug)]
pub struct Lane<E: Entry> {
    words: Words<E>,
    /// The ring's size less one: sizes are powers of two.
    mask: u16,
    suppression: Suppression,
}

// SAFETY: a lane is four addresses of atomics, all of them `Sync`, which `Lane::new`'s caller keeps mapped; it says
// nothing about the thread that uses them.
unsafe impl<E: Entry> Send for Lane<E> {}

/// Where the words of one lane are.
#[derive(Debug)]
pub struct Words<E: Entry> {
    /// The first of the ring's slots.
    pub entries: NonNull<E::Slot>,
    /// The writer's index.
    pub idx: NonNull<AtomicU16>,
    /// The reader's flags.
    pub flags: NonNull<AtomicU16>,
    /// The reader's event.
    pub event: NonNull<AtomicU16>,
}

impl<E: Entry> Lane<E> {
    /// A lane of `size` slots, a power of two, over these words. A [`crate::Writer`] takes one, a
    /// [`crate::Reader`] over the same words another.
    ///
    /// # Safety
    ///
    /// The words are mapped and aligned, and accessed as atomics only, for as long as the lane lives, or a
    /// [`IndexView`](crate::IndexView) of its reader, or one that [follows](crate::IndexView::follow) such a one.
    /// `size` slots follow `entries`.
    #[must_use]
    pub unsafe fn new(words: Words<E>, size: u16, suppression: Suppression) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} entries");
        Self {
            words,
            mask: size - 1,
            suppression,
        }
    }

    pub(crate) fn size(&self) -> u16 {
        self.mask + 1
    }

    pub(crate) fn suppression(&self) -> Suppression {
        self.suppression
    }

    /// The writer's index.
    pub(crate) fn idx(&self) -> &AtomicU16 {
        // SAFETY: `Lane::new`'s caller keeps this word mapped and aligned while the lane lives; the
        // peer may write it at any moment, so it is only ever seen as an atomic.
        unsafe { self.words.idx.as_ref() }
    }

    fn flags(&self) -> &AtomicU16 {
        // SAFETY: as for `idx`.
        unsafe { self.words.flags.as_ref() }
    }

    fn event(&self) -> &AtomicU16 {
        // SAFETY: as for `idx`.
        unsafe { self.words.event.as_ref() }
    }

    /// The slot that `index` falls on.
    pub(crate) fn slot(&self, index: RingIndex) -> &E::Slot {
        let at = usize::from(index.0 & self.mask);
        // SAFETY: the mask keeps it among the slots, which `Lane::new`'s caller keeps mapped.
        let slot = unsafe { self.words.entries.add(at) };
        // SAFETY: as for `idx`; a slot is made of atomics.
        unsafe { slot.as_ref() }
    }

    /// With `EVENT_IDX` the reader's flags are 0, whatever its memory held before (2.7.10.1).
    pub(crate) fn clear_flags(&self) {
        self.flags().store(0, Ordering::Relaxed);
    }

    /// The reader's wish: wake me once entry `index` is there.
    pub(crate) fn ask(&self, index: RingIndex) {
        match self.suppression {
            Suppression::EventIdx => self.event().store(index.0.to_le(), Ordering::Relaxed),
            Suppression::Flags => self.flags().store(0, Ordering::Relaxed),
        }
    }

    /// The reader's wish: do not wake me; `index` is the entry it takes next.
    pub(crate) fn decline(&self, index: RingIndex) {
        match self.suppression {
            // "Off" does not exist: the entry furthest away is the best there is (2.7.7.1).
            Suppression::EventIdx => self
                .event()
                .store(index.before().0.to_le(), Ordering::Relaxed),
            Suppression::Flags => self.flags().store(NO_NOTIFY.to_le(), Ordering::Relaxed),
        }
    }

    /// Does the reader want to be woken, now that the index went from `old` to `new`?
    pub(crate) fn wanted(&self, old: RingIndex, new: RingIndex) -> bool {
        match self.suppression {
            Suppression::EventIdx => {
                let event = RingIndex(u16::from_le(self.event().load(Ordering::Relaxed)));
                new.passed(event, old)
            }
            Suppression::Flags => {
                u16::from_le(self.flags().load(Ordering::Relaxed)) & NO_NOTIFY == 0
            }
        }
    }
}
