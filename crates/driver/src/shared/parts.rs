//! What a shared queue works with: its ends behind the lock, its descriptors outside it. loom has others of both,
//! without ring memory and system calls.

use std::io;

use pollux_disk::Failure;
use pollux_ring::{Armed, Notify, RingIndex};

use super::listeners::Point;
use super::wakeups::Wakeups;
use crate::notify::call::{Call, EventFd};
use crate::options::CompletionMode;

/// What waits for a request.
pub trait Owner: Send {
    /// What the request is now, polled or call-driven.
    fn completion(&self) -> CompletionMode;

    /// The request has ended. Under the queue's lock: what is to be woken goes to `wakes`.
    fn end(self, result: Result<(), Failure>, wakes: &mut Wakeups);
}

/// What is behind the lock: a queue's ends.
pub trait Ends: Send {
    /// What waits for a request.
    type Owner: Owner;

    /// Hands every request that has ended to `done`; returns how many chains have come back. A device
    /// that is gone, or breaks its ring, has ended all of them.
    fn reap(&mut self, done: &mut impl FnMut(Self::Owner, Result<(), Failure>)) -> u16;

    /// Shows the device what is staged.
    fn publish(&mut self) -> Notify;

    /// Have requests ended that the device was never shown? [`Ends::reap`] tells of them.
    fn has_failed(&self) -> bool;

    /// Asks for a call, then polls.
    fn arm(&mut self) -> Armed;

    /// Does the wish for a call still stand?
    fn is_armed(&self) -> bool;

    /// Asks for no calls.
    fn disarm(&mut self);

    /// Can another request be staged?
    fn has_room(&self) -> bool;

    /// Is the device gone?
    fn is_gone(&self) -> bool;

    /// The used element to be taken next.
    fn next(&self) -> RingIndex;
}

/// The outside of the lock: what a queue needs beside its ends.
pub trait Transport: Send + Sync {
    /// What the device signals.
    type EventFd: EventFd;
    /// Where the owner of a channel sleeps.
    type Point: Point;

    /// What the device calls.
    fn call(&self) -> &Call<Self::EventFd>;

    /// Calls end the sleep at `point` from now on, as does the loss or return of the device.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl` says.
    fn watched_by(&self, point: &Self::Point) -> io::Result<()>;

    /// Takes [`Transport::watched_by`] back.
    fn unwatched_by(&self, point: &Self::Point);

    /// Is there something to reap, behind the elements before `next`? A poll without the lock.
    fn sees_more_than(&self, next: RingIndex) -> bool;

    /// Kicks the device.
    fn kick(&self);

    /// Requests wait for a call that is suspended: a sleeper is to be woken in a while.
    fn start_timer(&self);

    /// Has the timer expired?
    fn timer(&self) -> bool;

    /// A poll has found so many chains.
    fn polled(&self, chains: u16);

    /// An owner goes to sleep.
    fn slept(&self);
}
