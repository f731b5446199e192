//! Threads that block on a shared queue: one of them hears its calls, the others are parked.
//!
//! The one that hears calls has the queue's [`CallSleeper`]. The others are parked, and the thread that reaps their
//! requests wakes them. A thread that leaves with the sleeper hands it on.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::parker::{CallSleeper, Parker};
use super::parts::{Ends, Transport};
use super::switchboard::{Deferred, Switchboard};
use crate::sync::model_has_ended;

/// One that blocks. It leaves however that ends: it wakes others as well, and their wakers may panic.
struct Blocked<'a, E: Ends, S: CallSleeper, O: Transport> {
    board: &'a Switchboard<E, S, O>,
    parker: Arc<Parker<S>>,
    sleeper: Option<S>,
}

impl<E: Ends, S: CallSleeper, O: Transport> Drop for Blocked<'_, E, S, O> {
    fn drop(&mut self) {
        if !model_has_ended() {
            self.board.leave(&self.parker, self.sleeper.take());
        }
    }
}

impl<E: Ends, S: CallSleeper, O: Transport> Switchboard<E, S, O> {
    /// Sleeps until `poll` is ready. `poll` registers the waker where what it waits for wakes it, and
    /// sees to it that calls are on.
    pub fn block<T>(&self, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
        let mut blocked = Blocked {
            board: self,
            parker: Parker::new(),
            sleeper: None,
        };
        let waker = Waker::from(Arc::clone(&blocked.parker));
        loop {
            if let Poll::Ready(ready) = poll(&waker) {
                return ready;
            }
            self.transport.slept();
            if blocked.sleeper.is_none() {
                blocked.sleeper = self.take_sleeper(&blocked.parker);
            }
            match &mut blocked.sleeper {
                Some(sleeper) => {
                    blocked.parker.sleep_for_calls(sleeper);
                    self.woken();
                }
                None => blocked.parker.park(),
            }
        }
    }

    /// Takes the sleeper; if another thread has it, `parker` is woken when it is free.
    fn take_sleeper(&self, parker: &Arc<Parker<S>>) -> Option<S> {
        let mut state = self.lock.lock();
        let sleeper = state.sleeper.take();
        let queued = state.parked.iter().position(|one| Arc::ptr_eq(one, parker));
        match (&sleeper, queued) {
            (Some(_), Some(position)) => {
                state.parked.remove(position);
            }
            (None, None) => state.parked.push_back(Arc::clone(parker)),
            (Some(_), None) | (None, Some(_)) => {}
        }
        self.release(state, Deferred::nothing());
        sleeper
    }

    /// Gives the sleeper back, and wakes the next to take it. Each thread that leaves sees to that, whether it had
    /// it or was about to.
    fn leave(&self, parker: &Arc<Parker<S>>, sleeper: Option<S>) {
        let mut state = self.lock.lock();
        let mut deferred = Deferred::nothing();
        state.parked.retain(|one| !Arc::ptr_eq(one, parker));
        if sleeper.is_some() {
            state.sleeper = sleeper;
        }
        if state.sleeper.is_some()
            && let Some(next) = state.parked.pop_front()
        {
            deferred.wakes.wake(Waker::from(next));
        }
        self.release(state, deferred);
    }
}
