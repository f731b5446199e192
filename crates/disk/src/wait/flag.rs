//! Is the owner asleep? The handshake of a sleep, without the descriptor that ends it.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_memory::Side;

/// Set by a thread that is about to sleep, taken by the one that wakes it.
///
/// ```text
/// sleeper:  arm();            poll; nothing -> sleep
/// waker:    publish;   take() -> true: write the descriptor
/// ```
/// Each side stores, passes a full fence, and loads what the other stored: one of them sees the other.
#[derive(Debug, Default)]
pub struct Flag {
    asleep: AtomicBool,
}

impl Flag {
    /// The owner is about to sleep: it polls once more after this.
    pub fn arm(&self) {
        // A store would do, as no `take` of before can come between it and the load of a later one;
        // but loom does not know that, and a swap costs nothing next to a sleep.
        self.asleep.swap(true, Ordering::Relaxed);
        // Pairs with the fence in `take`.
        Side::Reader.full_fence();
    }

    /// The owner is awake.
    pub fn disarm(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Must the caller, which has just published something, wake the owner? True for one caller only.
    #[must_use = "a sleeper that is not woken sleeps for ever"]
    pub fn take(&self) -> bool {
        // Pairs with the fence in `arm`.
        Side::Writer.full_fence();
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }
}
