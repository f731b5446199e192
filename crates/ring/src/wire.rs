//! The ring's structures as they lie in memory (VIRTIO 1.3, 2.7.5, 2.7.6 and 2.7.8).

use crate::sync::{AtomicU16, AtomicU32, Ordering};

/// The largest ring the specification allows.
pub const MAX_SIZE: u16 = 0x8000;

/// An entry of a lane: what is in a slot of the ring.
pub trait Entry: Copy {
    /// The slot's words, which the peer may read or write at any moment: atomics.
    type Slot: std::fmt::Debug + Sync;

    /// Reads the slot, once.
    fn load(slot: &Self::Slot) -> Self;

    /// Writes the slot. It is not read before the index is published.
    fn store(self, slot: &Self::Slot);
}

/// An entry of the available ring: the descriptor a chain starts at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(pub u16);

impl Entry for Head {
    type Slot = AtomicU16;

    fn load(slot: &Self::Slot) -> Self {
        Self(u16::from_le(slot.load(Ordering::Relaxed)))
    }

    fn store(self, slot: &Self::Slot) {
        slot.store(self.0.to_le(), Ordering::Relaxed);
    }
}

/// An entry of the used ring: a chain handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedElem {
    /// The descriptor the chain starts at.
    pub id: u32,
    /// How many bytes the device wrote into it.
    pub len: u32,
}

impl Entry for UsedElem {
    type Slot = [AtomicU32; 2];

    fn load([id, len]: &Self::Slot) -> Self {
        let load = |word: &AtomicU32| u32::from_le(word.load(Ordering::Relaxed));
        Self {
            id: load(id),
            len: load(len),
        }
    }

    fn store(self, [id, len]: &Self::Slot) {
        id.store(self.id.to_le(), Ordering::Relaxed);
        len.store(self.len.to_le(), Ordering::Relaxed);
    }
}
