//! The rings in loom's atomics.

use std::ptr::NonNull;

use loom::sync::atomic::AtomicU16;
use pollux_ring::{Entry, Head, Lane, RingIndex, Suppression, UsedElem, Words};

pub const SIZE: usize = 4;
/// The wrap is on the way.
pub const START: RingIndex = RingIndex(u16::MAX);

/// The shared words of one lane, in loom's atomics.
pub struct Ring<E: Entry> {
    entries: [E::Slot; SIZE],
    idx: AtomicU16,
    flags: AtomicU16,
    event: AtomicU16,
}

impl<E: Entry> Ring<E> {
    pub fn new(slot: impl Fn() -> E::Slot) -> Self {
        Self {
            entries: std::array::from_fn(|_| slot()),
            idx: AtomicU16::new(START.0),
            flags: AtomicU16::new(0),
            event: AtomicU16::new(0),
        }
    }

    pub fn lane(&self, suppression: Suppression) -> Lane<E> {
        let words = Words {
            entries: NonNull::from(&self.entries).cast(),
            idx: NonNull::from(&self.idx),
            flags: NonNull::from(&self.flags),
            event: NonNull::from(&self.event),
        };
        // SAFETY: every user of the lane holds the `Arc` of both rings for as long as the lane lives.
        unsafe { Lane::new(words, u16::try_from(SIZE).unwrap(), suppression) }
    }
}

/// Both lanes.
pub struct Rings {
    pub available: Ring<Head>,
    pub used: Ring<UsedElem>,
    pub suppression: Suppression,
}
