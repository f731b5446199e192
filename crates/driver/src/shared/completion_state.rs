//! What is known of a request that somebody holds, and whom its end wakes.

use std::task::Waker;

use atomic_waker::AtomicWaker;
use pollux_disk::Failure;

use super::wakeups::Wakeups;
use crate::notify::call_policy::CallPolicy;
use crate::options::Completion;
use crate::sync::{AtomicBool, OnceLock, Ordering};

/// What is known of a request.
#[derive(Debug)]
pub struct CompletionState {
    result: OnceLock<Result<(), Failure>>,
    /// Changed under the queue's lock only.
    call_driven: AtomicBool,
    /// Whom to wake.
    waker: AtomicWaker,
}

impl CompletionState {
    /// Of a request that has not ended.
    pub fn new(completion: Completion) -> Self {
        Self {
            result: OnceLock::new(),
            call_driven: AtomicBool::new(completion == Completion::Call),
            waker: AtomicWaker::new(),
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

    /// Under the queue's lock: it has ended.
    pub fn end(&self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        let set = self.result.set(result);
        debug_assert!(set.is_ok(), "a request ends once");
        if let Some(waker) = self.waker.take() {
            wakes.wake(waker);
        }
    }

    /// What it is now, polled or call-driven.
    pub fn completion(&self) -> Completion {
        if self.call_driven.load(Ordering::Relaxed) {
            Completion::Call
        } else {
            Completion::Polled
        }
    }

    /// Its end wakes `waker`, and no other. Not under the queue's lock: wakers are others' code.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Its end wakes nobody. Not under the queue's lock.
    pub fn unregister(&self) {
        drop(self.waker.take());
    }

    /// Under the queue's lock: its owner goes to sleep over it. It is call-driven from now on, whatever it was until
    /// now.
    pub fn sleep_over(&self, policy: &mut CallPolicy) {
        if !self.has_ended() && !self.call_driven.swap(true, Ordering::Relaxed) {
            policy.turn_over();
        }
    }
}
