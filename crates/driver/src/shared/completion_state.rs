//! What is known of a request that has an owner, and which waker its end wakes.

use std::task::Waker;

use pollux_disk::Failure;

use super::wakeups::Wakeups;
use crate::notify::call_policy::CallPolicy;
use crate::options::CompletionMode;
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering, lock};

/// What is known of a request.
#[derive(Debug)]
pub struct CompletionState {
    result: OnceLock<Result<(), Failure>>,
    /// Changed under the queue's lock only.
    call_driven: AtomicBool,
    /// The waker. It is changed under the queue's lock only, so that no thread ever waits for this lock.
    waker: Mutex<Option<Waker>>,
}

impl CompletionState {
    /// Of a request that has not ended.
    pub fn new(completion: CompletionMode) -> Self {
        Self {
            result: OnceLock::new(),
            call_driven: AtomicBool::new(completion == CompletionMode::Call),
            waker: Mutex::new(None),
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
        if let Some(waker) = self.set_waker(None) {
            wakes.wake(waker);
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
        std::mem::replace(&mut *lock(&self.waker), waker)
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
