//! How one thread sleeps that waits for a request: until the device calls, or parked.

use std::sync::Arc;
use std::task::Wake;

use crate::sync::{Condvar, Mutex, lock, wait};

/// A sleep that calls of the device end. A queue has one, for one thread at a time.
pub trait CallSleeper: Send + 'static {
    /// What ends the sleep from another thread.
    type Handle: Clone + std::fmt::Debug + Send + Sync + 'static;

    /// Another handle.
    fn handle(&self) -> Self::Handle;

    /// Announces the sleep: from now on a wake by a handle ends it.
    fn arm(&mut self);

    /// Sleeps until the device calls or a handle wakes it.
    fn sleep(&mut self);

    /// Ends the sleep.
    fn wake(handle: &Self::Handle);
}

/// A thread that waits.
#[derive(Debug)]
pub struct Parker<S: CallSleeper> {
    state: Mutex<ParkerState<S>>,
    /// Ends the sleep of one that is parked.
    woken: Condvar,
}

#[derive(Debug)]
struct ParkerState<S: CallSleeper> {
    /// It was woken, and has not polled yet.
    notified: bool,
    asleep: Sleep<S>,
}

/// Where it sleeps, or is about to: what has to be done to wake it.
#[derive(Debug)]
enum Sleep<S: CallSleeper> {
    No,
    ForCalls(S::Handle),
    Parked,
}

impl<S: CallSleeper> Parker<S> {
    /// One that is awake.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ParkerState {
                notified: false,
                asleep: Sleep::No,
            }),
            woken: Condvar::new(),
        })
    }

    /// Sleeps until calls or a wake end that, unless it was woken since it last slept.
    pub fn sleep_for_calls(&self, sleeper: &mut S) {
        sleeper.arm();
        {
            let mut state = lock(&self.state);
            if std::mem::take(&mut state.notified) {
                return;
            }
            state.asleep = Sleep::ForCalls(sleeper.handle());
        }
        sleeper.sleep();
        lock(&self.state).awake();
    }

    /// Sleeps where only a wake of its own ends it, unless it was woken since it last slept.
    pub fn park(&self) {
        let mut state = lock(&self.state);
        state.asleep = Sleep::Parked;
        while !state.notified {
            state = wait(&self.woken, state);
        }
        state.awake();
    }
}

impl<S: CallSleeper> ParkerState<S> {
    /// What woke it came before this, and the poll comes after.
    fn awake(&mut self) {
        self.notified = false;
        self.asleep = Sleep::No;
    }
}

impl<S: CallSleeper> Wake for Parker<S> {
    fn wake(self: Arc<Self>) {
        let mut state = lock(&self.state);
        state.notified = true;
        let handle = match &state.asleep {
            Sleep::ForCalls(handle) => handle.clone(),
            Sleep::Parked => {
                drop(state);
                return self.woken.notify_one();
            }
            Sleep::No => return,
        };
        drop(state);
        S::wake(&handle);
    }
}
