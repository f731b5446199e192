//! Waiting for room in a shared queue, or for the end of a request, with a waker.
//!
//! Wakers are others' code, and so is what their clones and drops do: dropping one may drop a task with
//! requests of its own on this very queue. None of that happens under the lock.

use std::task::{Poll, Waker};

use pollux_disk::Failure;

use super::completion_state::CompletionState;
use super::parker::CallSleeper;
use super::parts::{Ends, Transport};
use super::room::Turn;
use super::switchboard::{Deferred, Switchboard};

impl<E: Ends, S: CallSleeper, O: Transport> Switchboard<E, S, O> {
    /// Waits for room: ready when there is some, or it is this one's turn. Else `waker` is woken then, and
    /// `turn` names this one among those that wait.
    pub fn poll_room(&self, turn: &mut Option<Turn>, waker: &Waker) -> Poll<()> {
        // Cloned before the lock, and what it replaces is dropped after it: both are others' code.
        let mut waker = waker.clone();
        let mut state = self.lock.lock();
        let mut deferred = Deferred::nothing();
        let chains = state.reap(&self.transport, &mut deferred);
        self.transport.polled(chains);
        let position = state.for_room.position(*turn);
        let was_woken = turn.is_some() && position.is_none();
        if was_woken || state.ends.has_room() {
            self.release(state, deferred);
            return Poll::Ready(());
        }
        if let Some(position) = position {
            std::mem::swap(state.for_room.waker_mut(position), &mut waker);
        } else {
            state.policy.sleep();
            *turn = Some(state.for_room.push(waker));
        }
        // It sleeps now: calls have to be on. What that finds may be the room.
        let chains = state.reap(&self.transport, &mut deferred);
        self.transport.polled(chains);
        self.release(state, deferred);
        Poll::Pending
    }

    /// One that waits for room does not any more. If it was woken for room that it leaves, the next is.
    pub fn leave_room(&self, turn: Turn) {
        let mut state = self.lock.lock();
        let mut deferred = Deferred::nothing();
        let position = state.for_room.position(Some(turn));
        let left = position.map(|position| state.stops_waiting(position));
        if position.is_none() {
            state.wake_for_room(&mut deferred);
        }
        let chains = state.reap(&self.transport, &mut deferred);
        self.transport.polled(chains);
        self.release(state, deferred);
        drop(left);
    }

    /// How the request has ended; else `waker` is woken once it has.
    pub fn poll_end<L>(
        &self,
        state: &CompletionState<L>,
        waker: &Waker,
    ) -> Poll<Result<(), Failure>> {
        // Cloned before the lock, and what it replaces is dropped after it, as above: a panic in either leaves all as
        // it was, or as it is to be.
        let waker = waker.clone();
        let before = self.attend(|_, policy| state.sleep_over(waker, policy));
        drop(before);
        state.result().map_or(Poll::Pending, Poll::Ready)
    }

    /// Nobody waits for the request any more.
    pub fn forsake<L>(&self, state: &CompletionState<L>) {
        let before = self.attend(|_, _| state.set_waker(None));
        drop(before);
    }
}
