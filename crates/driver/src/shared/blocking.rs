//! Threads that block on a shared queue: one of them hears its calls, the others are parked.
//!
//! One sleeper holds the call descriptor; it sits in the seat. The others are parked, each at its own
//! wait point, and whoever reaps their requests wakes them there. A sitter that leaves hands the seat on.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::parker::{Parker, Seat};
use super::parts::{Ends, Outside};
use super::switchboard::{After, Switchboard};
use crate::sync::model_has_ended;

/// One that blocks. It leaves however that ends: it wakes others as well, and their wakers may panic.
struct Stay<'a, E: Ends, S: Seat, O: Outside> {
    board: &'a Switchboard<E, S, O>,
    parker: Arc<Parker<S>>,
    seat: Option<S>,
}

impl<E: Ends, S: Seat, O: Outside> Drop for Stay<'_, E, S, O> {
    fn drop(&mut self) {
        if !model_has_ended() {
            self.board.leave(&self.parker, self.seat.take());
        }
    }
}

impl<E: Ends, S: Seat, O: Outside> Switchboard<E, S, O> {
    /// Sleeps until `poll` is ready. `poll` registers the waker where what it waits for wakes it, and
    /// sees to it that calls are on.
    pub fn block<T>(&self, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
        let mut stay = Stay {
            board: self,
            parker: Parker::new(),
            seat: None,
        };
        let waker = Waker::from(Arc::clone(&stay.parker));
        loop {
            if let Poll::Ready(ready) = poll(&waker) {
                return ready;
            }
            self.outside.slept();
            if stay.seat.is_none() {
                stay.seat = self.sit(&stay.parker);
            }
            match &mut stay.seat {
                Some(seat) => {
                    stay.parker.sit(seat);
                    self.woken();
                }
                None => stay.parker.park(),
            }
        }
    }

    /// Takes the seat; if somebody has it, `parker` is woken when it is free.
    fn sit(&self, parker: &Arc<Parker<S>>) -> Option<S> {
        let mut state = self.lock.lock();
        let seat = state.seat.take();
        let queued = state.parked.iter().position(|one| Arc::ptr_eq(one, parker));
        match (&seat, queued) {
            (Some(_), Some(place)) => {
                state.parked.remove(place);
            }
            (None, None) => state.parked.push_back(Arc::clone(parker)),
            (Some(_), None) | (None, Some(_)) => {}
        }
        self.release(state, After::nothing());
        seat
    }

    /// Gives the seat back, and wakes the next to take it. Whoever leaves sees to that, whether it sat
    /// there or was about to.
    fn leave(&self, parker: &Arc<Parker<S>>, seat: Option<S>) {
        let mut state = self.lock.lock();
        let mut after = After::nothing();
        state.parked.retain(|one| !Arc::ptr_eq(one, parker));
        if seat.is_some() {
            state.seat = seat;
        }
        if state.seat.is_some()
            && let Some(next) = state.parked.pop_front()
        {
            after.wakes.wake(Waker::from(next));
        }
        self.release(state, after);
    }
}
