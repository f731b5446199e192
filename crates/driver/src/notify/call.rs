//! The call descriptor of a queue, and the poll that every call read from it stands for.
//!
//! All sleepers of a queue watch this one descriptor, and `epoll` reports it only while it is readable: reading it
//! takes the event from a sleeper that has not run yet. So it can be read only here, and what was read is a
//! [`Heard`], which signals the descriptor anew when it is dropped without a poll of the ring: on an early return,
//! on an error, in a panic. Reading without polling cannot lose a wake-up, then; it costs one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::Counts;
use crate::sync::model_has_ended;

/// An eventfd, which does not block ([`SharedFd`](super::shared_fd::SharedFd)); loom has one of its own.
pub trait EventFd: Send + Sync {
    /// Reads it: how often it was signalled, or 0.
    fn read(&self) -> u64;

    /// Signals it once, and wakes all that sleep over it.
    fn signal(&self);
}

/// What the device calls.
#[derive(Debug)]
pub struct Call<F> {
    fd: F,
    counts: Arc<Counts>,
    /// Calls that came with one that was signalled anew.
    beside: AtomicU64,
}

impl<F: EventFd> Call<F> {
    /// Calls come by `fd`, and are counted in `counts` once they were handled.
    pub fn new(fd: F, counts: Arc<Counts>) -> Self {
        let beside = AtomicU64::new(0);
        Self { fd, counts, beside }
    }

    /// The descriptor, for the device to signal and for sleepers to watch. **Not to be read.**
    pub fn fd(&self) -> &F {
        &self.fd
    }

    /// Reads the calls that have come.
    pub fn hear(&self) -> Heard<'_, F> {
        let calls = match self.fd.read() {
            0 => 0,
            calls => calls + self.beside.swap(0, Ordering::Relaxed),
        };
        Heard { call: self, calls }
    }
}

/// Calls that were read. Sleepers may not have seen them: a poll of the ring, which completes whatever they were
/// about, stands in for that; without one they come again.
#[must_use = "a poll of the ring is owed to those that sleep over these calls"]
pub struct Heard<'a, F: EventFd> {
    call: &'a Call<F>,
    calls: u64,
}

impl<F: EventFd> Heard<'_, F> {
    /// All that was in the ring after these calls were read was reaped, for everybody.
    pub fn reaped(mut self) {
        let calls = std::mem::take(&mut self.calls);
        self.call.counts.calls.add_shared(calls);
    }

    /// For an owner that reaps at another time: `pending` tells whether there is something to reap. If so, the calls
    /// come again, and are not counted yet: how many they are.
    pub fn unless(self, pending: impl FnOnce() -> bool) -> u64 {
        if pending() {
            return self.calls;
        }
        self.reaped();
        0
    }
}

impl<F: EventFd> Drop for Heard<'_, F> {
    fn drop(&mut self) {
        if self.calls > 0 && !model_has_ended() {
            self.call
                .beside
                .fetch_add(self.calls - 1, Ordering::Relaxed);
            self.call.fd.signal();
        }
    }
}

impl<F: EventFd> fmt::Debug for Heard<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Heard").field(&self.calls).finish()
    }
}
