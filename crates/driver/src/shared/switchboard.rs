//! A queue that any number of threads and tasks share.
//!
//! A poll by any owner reaps for all: a request that has ended completes there and then, and its owner is woken at its
//! own wait point, after the lock is released. *Calls are on while a call-driven request is in flight or any owner
//! sleeps* ([`CallPolicy`] decides); turning them on is a loop of asking and polling, and what a poll finds is reaped
//! before any owner sleeps.
//!
//! The module knows no ring and no descriptor: those are behind [`Ends`] and [`CallSleeper`]. loom runs it over
//! the real `Reader` and `Writer`, in every interleaving.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use pollux_ring::{Armed, Notify, RingIndex};

use super::listeners::Listeners;
use super::parker::{CallSleeper, Parker};
use super::parts::{Ends, Owner, Transport};
use super::room::{RoomQueue, Turn};
use super::wakeups::Wakeups;
use crate::notify::call_policy::CallPolicy;
use crate::options::{KickLock, Mixed};
use crate::shared::lock::{Guard, Lock};
use crate::sync::{AtomicU16, Ordering};

/// A shared queue.
pub struct Switchboard<E: Ends, S: CallSleeper, O: Transport> {
    /// Goes first: the queue stops with it, and only then is what was lent with requests let go.
    pub(super) transport: O,
    pub(super) lock: Lock<Locked<E, S>>,
    /// The channels.
    pub(super) listeners: Listeners<O::Point>,
    /// The used element to be taken next, for polls without the lock.
    next: AtomicU16,
    kick_lock: KickLock,
}

pub(super) struct Locked<E: Ends, S: CallSleeper> {
    pub(super) ends: E,
    pub(super) policy: CallPolicy,
    /// What hears calls, while no thread sleeps with it.
    pub(super) sleeper: Option<S>,
    pub(super) parked: VecDeque<Arc<Parker<S>>>,
    pub(super) for_room: RoomQueue,
    /// A timer is set, and has not expired.
    timer_runs: bool,
}

/// What is left to do when the lock is released.
#[must_use = "the woken one sleeps on"]
pub(super) struct Deferred {
    pub(super) wakes: Wakeups,
    kick: bool,
}

impl Deferred {
    pub(super) fn nothing() -> Self {
        Self {
            wakes: Wakeups::none(),
            kick: false,
        }
    }
}

impl<E: Ends, S: CallSleeper> Locked<E, S> {
    /// Reaps, and sees to it that calls are on if they are needed.
    pub(super) fn reap(&mut self, transport: &impl Transport, deferred: &mut Deferred) -> u16 {
        let mut all = 0u16;
        loop {
            let chains = self.reap_once(deferred);
            all = all.saturating_add(chains);
            if self.settle(transport) == Armed::Idle {
                break;
            }
        }
        // What follows, what has waited for room, or, at another server, all that was in flight.
        if self.ends.publish() == Notify::Needed {
            deferred.kick = true;
        }
        all
    }

    fn reap_once(&mut self, deferred: &mut Deferred) -> u16 {
        let Self { ends, policy, .. } = self;
        let chains = ends.reap(&mut |owner: E::Owner, result| {
            policy.end(owner.completion());
            owner.end(result, &mut deferred.wakes);
        });
        let most = if self.ends.is_gone() {
            u16::MAX
        } else {
            chains
        };
        for _ in 0..most {
            if !self.wake_for_room(deferred) {
                break;
            }
        }
        chains
    }

    /// Wakes the first of those that wait for room, if there is room. Did any wait?
    pub(super) fn wake_for_room(&mut self, deferred: &mut Deferred) -> bool {
        if !self.ends.has_room() {
            return false;
        }
        let Some(waker) = self.for_room.pop() else {
            return false;
        };
        self.policy.wake();
        deferred.wakes.wake(waker);
        true
    }

    /// Takes one out of those that wait for room. Its waker is to be dropped when the lock is released.
    pub(super) fn stops_waiting(&mut self, position: usize) -> Waker {
        self.policy.wake();
        self.for_room.remove(position)
    }

    /// Turns calls on or off, as they are needed now. [`Armed::Pending`]: reap, and settle again.
    fn settle(&mut self, transport: &impl Transport) -> Armed {
        if self.policy.wanted() {
            if self.ends.is_armed() {
                return Armed::Idle;
            }
            return self.ends.arm();
        }
        self.ends.disarm();
        if self.policy.suspended() && !self.timer_runs {
            self.timer_runs = true;
            transport.start_timer();
        }
        Armed::Idle
    }
}

impl<E: Ends, S: CallSleeper, O: Transport> Switchboard<E, S, O> {
    /// A queue without requests.
    pub fn new(ends: E, sleeper: S, transport: O, mixed: Mixed, kick_lock: KickLock) -> Self {
        Self {
            next: AtomicU16::new(ends.next().0),
            lock: Lock::new(Locked {
                ends,
                policy: CallPolicy::new(mixed),
                sleeper: Some(sleeper),
                parked: VecDeque::new(),
                for_room: RoomQueue::default(),
                timer_runs: false,
            }),
            transport,
            listeners: Listeners::new(),
            kick_lock,
        }
    }

    /// Records how long the lock is held and waited for.
    pub fn record(&mut self) {
        self.lock.record();
    }

    /// The lock, for what it has recorded.
    pub fn times(&self) -> Option<crate::shared::lock::LockTimes> {
        self.lock.times()
    }

    /// What is outside the lock.
    pub fn transport(&self) -> &O {
        &self.transport
    }

    #[cfg(test)]
    pub fn has_room(&self) -> bool {
        self.lock.lock().ends.has_room()
    }

    /// Releases the lock, and does what is left to do. Whether to kick was decided under the lock; the
    /// kick itself, a system call, comes after it.
    pub(super) fn release(&self, state: Guard<'_, Locked<E, S>>, mut deferred: Deferred) {
        self.next.store(state.ends.next().0, Ordering::Relaxed);
        if deferred.kick && self.kick_lock == KickLock::Held {
            self.transport.kick();
            deferred.kick = false;
        }
        drop(state);
        if deferred.kick {
            self.transport.kick();
        }
        deferred.wakes.send();
    }

    /// Lets `submit` stage requests, if there is room, and shows them to the device. False: there is no
    /// room, and nothing was done.
    ///
    /// A thread that was woken for room (`turn`) and finds that others were faster does not wait again: awake
    /// as they are, they might be faster for ever. It goes into the backlog, which has its order.
    pub fn submit(
        &self,
        turn: &mut Option<Turn>,
        submit: impl FnOnce(&mut E, &mut CallPolicy),
    ) -> bool {
        let mut state = self.lock.lock();
        let position = state.for_room.position(*turn);
        let was_woken = turn.is_some() && position.is_none();
        if !was_woken && !state.ends.has_room() {
            return false;
        }
        *turn = None;
        let left = position.map(|position| state.stops_waiting(position));
        self.stage(state, was_woken, submit);
        drop(left);
        true
    }

    /// Lets `submit` stage requests that wait in the queue's backlog where there is no room.
    pub fn submit_all(&self, submit: impl FnOnce(&mut E, &mut CallPolicy)) {
        self.stage(self.lock.lock(), false, submit);
    }

    fn stage(
        &self,
        mut state: Guard<'_, Locked<E, S>>,
        was_woken: bool,
        submit: impl FnOnce(&mut E, &mut CallPolicy),
    ) {
        let mut deferred = Deferred::nothing();
        let Locked { ends, policy, .. } = &mut *state;
        submit(ends, policy);
        deferred.kick = ends.publish() == Notify::Needed;
        if was_woken {
            // One is woken for each chain that comes back, which may have made room for several.
            state.wake_for_room(&mut deferred);
        }
        // What has come back meanwhile is for the next poll; but no owner may be left asleep over it,
        // nor over what no poll of the ring finds.
        let failed = state.ends.has_failed();
        if state.settle(&self.transport) == Armed::Pending || failed {
            let chains = state.reap(&self.transport, &mut deferred);
            self.transport.polled(chains);
        }
        self.release(state, deferred);
    }

    /// Looks, and reaps for everybody what is there; returns how many chains have come back. It never
    /// sleeps, and takes the lock only if there is something.
    ///
    /// What the device publishes right after this poll is found by the next one; and an owner that turns calls
    /// on polls after that.
    #[inline]
    pub fn poll(&self) -> u16 {
        let next = RingIndex(self.next.load(Ordering::Relaxed));
        if !self.transport.sees_more_than(next) {
            self.transport.polled(0);
            return 0;
        }
        let mut state = self.lock.lock();
        state.policy.polled();
        let mut deferred = Deferred::nothing();
        let chains = state.reap(&self.transport, &mut deferred);
        self.transport.polled(chains);
        self.release(state, deferred);
        chains
    }

    /// Reaps for all, after a call or a bell: whatever a wish to be called was about, it is looked
    /// after here and the wish renewed.
    pub fn woken(&self) {
        self.attend(|_, _| ());
    }

    /// Runs `attend` under the lock, then reaps and settles: afterwards calls are as they are needed.
    pub fn attend<T>(&self, attend: impl FnOnce(&mut E, &mut CallPolicy) -> T) -> T {
        let mut state = self.lock.lock();
        let mut deferred = Deferred::nothing();
        if state.timer_runs && self.transport.timer() {
            state.timer_runs = false;
            state.policy.overdue();
        }
        let Locked { ends, policy, .. } = &mut *state;
        let answer = attend(ends, policy);
        let chains = state.reap(&self.transport, &mut deferred);
        self.transport.polled(chains);
        self.release(state, deferred);
        answer
    }
}

impl<E: Ends, S: CallSleeper, O: Transport> std::fmt::Debug for Switchboard<E, S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switchboard")
            .field("lock", &self.lock)
            .field("next", &self.next)
            .field("kick_lock", &self.kick_lock)
            .finish_non_exhaustive()
    }
}
