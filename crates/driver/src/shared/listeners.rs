//! Which of the channels that sleep over a shared queue holds its call descriptor.
//!
//! One does. A call wakes that one alone; it reaps for everybody, and whose requests it reaps is woken at
//! its own wait point. When it leaves, it hands the descriptor on to another that sleeps. Alone on its
//! queue, a channel keeps it from one sleep to the next, which costs nothing.
//!
//! `EPOLLEXCLUSIVE` would seem to do that in the kernel: all channels watch the descriptor all the time,
//! and one thread of those that sleep in `epoll_wait` is woken. But that a thread sleeps at a wait point
//! does not say over what. One that has two channels, and sleeps over the other one, would be woken, would
//! not poll this queue, and would sleep on, while the call was meant for another. So only a sleeper that has
//! armed here may hold the descriptor, and `epoll` cannot know which one that is.

use std::collections::VecDeque;
use std::io;

use pollux_disk::{Admitted, Quota};

use crate::sync::{Mutex, lock};

/// Where a channel's owner sleeps.
pub trait Point: Clone {
    /// Ends its sleep.
    fn wake(&self);

    /// Is it the same place? An owner may have several channels.
    fn is(&self, other: &Self) -> bool;
}

/// The sleepers, and the one of them that holds the descriptor.
#[derive(Debug)]
pub struct Listeners<P> {
    inside: Mutex<Inside<P>>,
    /// For lines about calls that cannot be waited for: a server can keep its eventfd from being watched.
    log_quota: Quota,
}

#[derive(Debug)]
struct Inside<P> {
    /// In the order in which they went to sleep.
    asleep: VecDeque<Listener<P>>,
    /// It sleeps, unless none does.
    holder: Option<Listener<P>>,
    /// The name of the next one.
    next: u64,
}

/// One that sleeps from time to time.
#[derive(Clone, Debug)]
pub struct Listener<P> {
    name: u64,
    point: P,
}

/// Moves the descriptor from one wait point, if any, to another, if any. What it heard meanwhile is for the caller
/// to handle.
pub trait Hand<P, H>: Fn(Option<&P>, Option<&P>) -> io::Result<Option<H>> {}

impl<P, H, F: Fn(Option<&P>, Option<&P>) -> io::Result<Option<H>>> Hand<P, H> for F {}

impl<P: Point> Listeners<P> {
    /// Nobody yet.
    pub fn new() -> Self {
        Self {
            inside: Mutex::new(Inside {
                asleep: VecDeque::new(),
                holder: None,
                next: 0,
            }),
            log_quota: Quota::default(),
        }
    }

    /// One more, which sleeps at `point`, awake at first.
    pub fn add(&self, point: &P) -> Listener<P> {
        let mut inside = lock(&self.inside);
        inside.next += 1;
        Listener {
            name: inside.next,
            point: point.clone(),
        }
    }

    /// It goes to sleep. The caller handles what is heard over it.
    ///
    /// # Errors
    ///
    /// Where it ought to hold the descriptor and cannot: it may not sleep.
    pub fn sleep<H>(&self, listener: &Listener<P>, hand: impl Hand<P, H>) -> io::Result<Option<H>> {
        let settled = {
            let mut inside = lock(&self.inside);
            inside.asleep.push_back(listener.clone());
            inside.settle(hand).inspect_err(|_| {
                inside.asleep.pop_back();
            })
        };
        settled.inspect_err(|error| self.warn(error))
    }

    fn warn(&self, error: &io::Error) {
        if let Some(Admitted { withheld }) = self.log_quota.admits() {
            tracing::warn!(%error, withheld, "calls cannot be waited for: a thread polls instead");
        }
    }

    /// It sleeps no more, and the caller handles what is heard over it, as for [`Listeners::sleep`].
    pub fn wake<H>(&self, listener: &Listener<P>, hand: impl Hand<P, H>) -> Option<H> {
        let mut inside = lock(&self.inside);
        inside.asleep.retain(|other| other.name != listener.name);
        loop {
            match inside.settle(&hand) {
                Ok(heard) => return heard,
                // It polls for itself then, and tries to listen again before it sleeps.
                Err(error) => {
                    self.warn(&error);
                    if let Some(deaf) = inside.asleep.pop_front() {
                        deaf.point.wake();
                    }
                }
            }
        }
    }

    /// It will sleep no more: [`Listeners::wake`], and nothing of it stays behind.
    pub fn remove<H>(&self, listener: &Listener<P>, hand: impl Hand<P, H>) -> Option<H> {
        let heard = self.wake(listener, &hand);
        let mut inside = lock(&self.inside);
        if inside.holds(listener.name) {
            let unheld = hand(Some(&listener.point), None);
            debug_assert!(unheld.is_ok());
            inside.holder = None;
        }
        heard
    }
}

impl<P: Point> Inside<P> {
    fn holds(&self, name: u64) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.name == name)
    }

    /// Sees to it that one that sleeps holds the descriptor.
    fn settle<H>(&mut self, hand: impl Hand<P, H>) -> io::Result<Option<H>> {
        let Some(first) = self.asleep.front() else {
            return Ok(None);
        };
        if self.asleep.iter().any(|one| self.holds(one.name)) {
            return Ok(None);
        }
        let from = self.holder.as_ref().map(|holder| &holder.point);
        let heard = match from {
            // It is watched there already.
            Some(from) if from.is(&first.point) => None,
            from => hand(from, Some(&first.point))?,
        };
        self.holder = Some(first.clone());
        Ok(heard)
    }
}

#[cfg(test)]
mod tests;
