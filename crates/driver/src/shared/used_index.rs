//! What a poll of a shared queue without its lock can see.

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_ring::{IndexView, RingIndex, UsedElem};

use crate::device::Device;
use crate::requests::core::Core;

/// The used ring of a queue, and which server fills it.
#[derive(Debug)]
pub struct UsedIndex {
    view: IndexView<UsedElem>,
    epoch: AtomicU64,
}

impl UsedIndex {
    /// Of what `core` reaps.
    pub fn new<T>(core: &Core<T>) -> Self {
        Self {
            view: core.index_view(),
            epoch: AtomicU64::new(core.epoch()),
        }
    }

    /// `core` has gone on to other rings. Under the queue's lock. A poll meanwhile may see the ring
    /// of before, or mistake the one for the other: the owner polls once too often, or once more.
    pub fn follow<T>(&self, core: &Core<T>) {
        self.view.follow(&core.index_view());
        self.epoch.store(core.epoch(), Ordering::Relaxed);
    }

    /// Is there something to reap behind the elements before `next`, or another server to go to, or none
    /// any more?
    #[inline]
    pub fn sees_more_than(&self, next: RingIndex, device: &Device) -> bool {
        self.view.sees_more_than(next) || device.epoch() != self.epoch.load(Ordering::Relaxed)
    }
}
