//! Where a thread sleeps that waits for a request: in the queue's seat, or parked.
//!
//! One sleeper holds the call descriptor; it sits in the seat. The others are parked, each at its own
//! wait point, and whoever reaps their requests wakes them there. A sitter that leaves hands the seat on.

use std::sync::Arc;
use std::task::Wake;

use crate::sync::{Mutex, lock, thread};

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
    thread: thread::Thread,
    state: Mutex<State<S>>,
}

#[derive(Debug)]
struct State<S: Seat> {
    /// It was woken, and has not looked yet.
    notified: bool,
    /// The bell of the seat, while it sits there.
    seated: Option<S::Bell>,
}

impl<S: Seat> Parker<S> {
    /// Of the calling thread.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            state: Mutex::new(State {
                notified: false,
                seated: None,
            }),
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
            state.seated = Some(seat.bell());
        }
        seat.sleep();
        let mut state = lock(&self.state);
        state.seated = None;
        state.notified = false;
    }

    /// Sleeps where only a wake of its own ends it, unless it was woken since it last slept.
    pub fn park(&self) {
        while !std::mem::take(&mut lock(&self.state).notified) {
            thread::park();
        }
    }
}

impl<S: Seat> Wake for Parker<S> {
    fn wake(self: Arc<Self>) {
        let bell = {
            let mut state = lock(&self.state);
            state.notified = true;
            state.seated.clone()
        };
        match bell {
            Some(bell) => S::ring(&bell),
            None => self.thread.unpark(),
        }
    }
}
