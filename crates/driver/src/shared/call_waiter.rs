//! Where a thread sleeps that waits for a request: in the queue's seat, or parked.
//!
//! One sleeper holds the call descriptor; it sits in the seat. The others are parked, each at its own
//! wait point, and whoever reaps their requests wakes them there. A sitter that leaves hands the seat on.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use super::switchboard::{After, Ends, Outside, Switchboard};
use crate::sync::{Condvar, Mutex, lock, model_has_ended, wait};

/// The place to sleep that a device's call ends.
pub trait Seat: Send + 'static {
    /// A handle that ends the sleep of whoever sits there.
    type Bell: Clone + std::fmt::Debug + Send + Sync + 'static;

    /// Another handle.
    fn bell(&self) -> Self::Bell;

    /// Announces the sleep: from now on a bell that is rung ends it.
    fn arm(&mut self);

    /// Sleeps until the device calls or somebody rings.
    fn sleep(&mut self);

    /// Ends the sleep of whoever sits there.
    fn ring(bell: &Self::Bell);
}

/// A thread that waits.
#[derive(Debug)]
pub struct Parker<S: Seat> {
    state: Mutex<State<S>>,
    /// Ends the sleep of one that is parked.
    woken: Condvar,
}

#[derive(Debug)]
struct State<S: Seat> {
    /// It was woken, and has not looked yet.
    notified: bool,
    asleep: Asleep<S>,
}

/// Where it sleeps, or is about to: what has to be done to wake it.
#[derive(Debug)]
enum Asleep<S: Seat> {
    No,
    Seated(S::Bell),
    Parked,
}

impl<S: Seat> Parker<S> {
    /// One that is awake.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                notified: false,
                asleep: Asleep::No,
            }),
            woken: Condvar::new(),
        })
    }

    /// Sleeps in `seat`, unless it was woken since it last slept.
    pub fn sit(&self, seat: &mut S) {
        seat.arm();
        {
            let mut state = lock(&self.state);
            if std::mem::take(&mut state.notified) {
                return;
            }
            state.asleep = Asleep::Seated(seat.bell());
        }
        seat.sleep();
        lock(&self.state).awake();
    }

    /// Sleeps where only a wake of its own ends it, unless it was woken since it last slept.
    pub fn park(&self) {
        let mut state = lock(&self.state);
        state.asleep = Asleep::Parked;
        while !state.notified {
            state = wait(&self.woken, state);
        }
        state.awake();
    }
}

impl<S: Seat> State<S> {
    /// Whatever woke it came before this, and the look comes after.
    fn awake(&mut self) {
        self.notified = false;
        self.asleep = Asleep::No;
    }
}

impl<S: Seat> Wake for Parker<S> {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        state.notified = true;
        let bell = match &state.asleep {
            Asleep::Seated(bell) => bell.clone(),
            Asleep::Parked => {
                drop(state);
                return self.woken.notify_one();
            }
            Asleep::No => return,
        };
        drop(state);
        S::ring(&bell);
    }
}

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
