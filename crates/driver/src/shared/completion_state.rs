//! What is known of a request that has an owner, and which waker its end wakes.

use std::task::Waker;

use pollux_disk::Failure;

use super::wakeups::Wakeups;
use crate::notify::call_policy::CallPolicy;
use crate::options::CompletionMode;
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};

/// What is known of a request, and `L` that was lent with it.
#[derive(Debug)]
pub struct CompletionState<L> {
    result: OnceLock<Result<(), Failure>>,
    /// Changed under the queue's lock only.
    call_driven: AtomicBool,
    /// The one lock of a request.
    guarded: Mutex<Guarded<L>>,
}

#[derive(Debug)]
struct Guarded<L> {
    /// Changed under the queue's lock only, so it needs no lock of its own beside that of `lent`.
    waker: Option<Waker>,
    /// Taken once: by the owner after the end, or at the end if the device is gone.
    lent: Option<L>,
}

impl<L> CompletionState<L> {
    /// Of a request that has not ended.
    pub fn new(completion: CompletionMode, lent: L) -> Self {
        let guarded = Guarded {
            waker: None,
            lent: Some(lent),
        };
        Self {
            result: OnceLock::new(),
            call_driven: AtomicBool::new(completion == CompletionMode::Call),
            guarded: Mutex::new(guarded),
        }
    }

    /// How it has ended, once it has.
    pub fn result(&self) -> Option<Result<(), Failure>> {
        self.result.get().copied()
    }

    /// Has it ended?
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.result.get().is_some()
    }

    /// What was lent, unless it was taken.
    pub fn take_lent(&self) -> Option<L> {
        lock(&self.guarded).lent.take()
    }

    /// Under the queue's lock: it has ended.
    pub fn end(&self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        // Before the end is seen: the owner takes the lock then.
        let sleeper = self.set_waker(None);
        let set = self.result.set(result);
        debug_assert!(set.is_ok(), "a request ends once");
        if let Some(sleeper) = sleeper {
            wakes.wake(sleeper);
        }
    }

    /// What it is now, polled or call-driven.
    pub fn completion(&self) -> CompletionMode {
        if self.call_driven.load(Ordering::Relaxed) {
            CompletionMode::Call
        } else {
            CompletionMode::Polled
        }
    }

    /// Under the queue's lock: its end wakes `waker`, and no other. The one of before is to be dropped once the lock is
    /// released: wakers are others' code.
    #[must_use = "it is dropped without the lock"]
    pub fn set_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut lock(&self.guarded).waker, waker)
    }

    /// Under the queue's lock: its owner goes to sleep over it, to be woken by `waker`; what is to be dropped is as for
    /// [`CompletionState::set_waker`]. It is call-driven from now on, whatever it was until now.
    #[must_use = "it is dropped without the lock"]
    pub fn sleep_over(&self, waker: Waker, policy: &mut CallPolicy) -> Option<Waker> {
        if self.has_ended() {
            return Some(waker);
        }
        if !self.call_driven.swap(true, Ordering::Relaxed) {
            policy.turn_over();
        }
        self.set_waker(Some(waker))
    }
}
