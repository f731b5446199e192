//! What is known of a request that somebody holds, and whom its end wakes.

use std::task::Waker;

use pollux_disk::Failure;

use super::wakeups::Wakeups;
use crate::notify::call_policy::CallPolicy;
use crate::options::Completion;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// What is known of a request.
#[derive(Debug)]
pub struct CompletionState {
    ended: AtomicBool,
    result: Mutex<Option<Result<(), Failure>>>,
    /// Changed under the queue's lock only.
    call_driven: AtomicBool,
    /// Whom to wake. Set and taken under the queue's lock only.
    pub(super) waker: Mutex<Option<Waker>>,
}

impl CompletionState {
    /// Of a request that has not ended.
    pub fn new(completion: Completion) -> Self {
        Self {
            ended: AtomicBool::new(false),
            result: Mutex::new(None),
            call_driven: AtomicBool::new(completion == Completion::Call),
            waker: Mutex::new(None),
        }
    }

    /// How it has ended, once it has.
    pub fn result(&self) -> Option<Result<(), Failure>> {
        self.has_ended().then(|| {
            let result = *lock(&self.result);
            result.expect("it is written before `ended` is set")
        })
    }

    /// Has it ended?
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Under the queue's lock: it has ended.
    pub fn end(&self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        *lock(&self.result) = Some(result);
        self.ended.store(true, Ordering::Release);
        if let Some(waker) = lock(&self.waker).take() {
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

    /// Under the queue's lock: its owner goes to sleep over it, to be woken by `waker`, for which it gets
    /// the one of before back. It is call-driven from now on, whatever it was until now.
    pub fn sleep_over(&self, waker: &mut Option<Waker>, policy: &mut CallPolicy) {
        if self.has_ended() {
            return;
        }
        std::mem::swap(&mut *lock(&self.waker), waker);
        if !self.call_driven.swap(true, Ordering::Relaxed) {
            policy.turn_over();
        }
    }
}
