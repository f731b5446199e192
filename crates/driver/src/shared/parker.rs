//! How one thread sleeps that waits for a request: in the queue's seat, or parked.

use std::sync::Arc;
use std::task::Wake;

use crate::sync::{Condvar, Mutex, lock, wait};

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
