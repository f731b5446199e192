//! Kicking the device: the transport's part of a queue, which outlives every lock.

use std::cell::Cell;
use std::sync::Arc;

use super::call::EventFd as _;
use super::shared_fd::SharedFd;
use crate::counters::Counts;

thread_local! {
    /// How many recorded queue locks this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Notes that this thread holds a queue's lock, for as long as it lives.
#[derive(Debug)]
pub struct Holding(());

impl Holding {
    /// From now on.
    pub fn begin() -> Self {
        HELD.with(|held| held.set(held.get() + 1));
        Self(())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
    }
}

/// Rings at the device. A thread that rings after a lock was released has one of its own, so that what
/// it rings cannot go meanwhile.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    kick: Arc<SharedFd>,
    counts: Arc<Counts>,
}

impl Doorbell {
    /// Rings by writing to `kick`, and counts it.
    pub fn new(kick: Arc<SharedFd>, counts: Arc<Counts>) -> Self {
        Self(Arc::new(Bell { kick, counts }))
    }

    /// Kicks the device.
    pub fn ring(&self) {
        let bell = &self.0;
        bell.counts.kicks.add_shared(1);
        if HELD.with(Cell::get) > 0 {
            bell.counts.kicks_under_lock.add_shared(1);
        }
        bell.kick.signal();
    }
}
