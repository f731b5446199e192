//! How long a thread that waits for a completion polls before sleeping: a machine without queue or clock of its own,
//! the [`Window`] of the worker on the device's side, for one wait after the other.

use std::time::Duration;

use pollux_disk::wait::{Neighbours, Window, Yielded};

use crate::sync::{Mutex, lock};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll again.
    Poll,
    /// Let others run that wait for this processor, if there are any, and poll again.
    Yield,
    /// Arm, poll once more, and sleep.
    Sleep,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Polling {
    window: Window,
    neighbours: Neighbours,
    gap: Option<Gap>,
}

/// A time without events that was not over at once.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Duration,
    /// Until when is polled. Zero: not, or not any more.
    until: Duration,
    /// Did others run in it?
    interrupted: bool,
}

impl Polling {
    /// One that nothing is known of.
    pub const fn new() -> Self {
        Self {
            window: Window::new(),
            neighbours: Neighbours::new(),
            gap: None,
        }
    }

    /// A poll was empty, at `now`.
    #[inline]
    pub fn empty(&mut self, now: Duration) -> Next {
        let gap = self.gap.get_or_insert_with(|| {
            let open = if self.neighbours.lets_poll(now) {
                self.window.open(Window::MOST)
            } else {
                Duration::ZERO
            };
            let until = if open.is_zero() { open } else { now + open };
            Gap {
                since: now,
                until,
                interrupted: false,
            }
        });
        if now < gap.until {
            return self.polls_on();
        }
        if !gap.until.is_zero() {
            gap.until = Duration::ZERO;
            self.window.failed();
        }
        Next::Sleep
    }

    /// A poll was empty, and there is no sleep.
    #[inline]
    pub fn polls_on(&mut self) -> Next {
        if self.neighbours.is_due(1) {
            Next::Yield
        } else {
            Next::Poll
        }
    }

    /// Others might run, by `now`.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) {
        if self.neighbours.gave_way(now, yielded)
            && let Some(gap) = &mut self.gap
        {
            gap.interrupted = true;
            gap.until = Duration::ZERO;
        }
    }

    /// The wait has ended. `clock` is asked if it took any time.
    #[inline]
    pub fn over(&mut self, clock: impl FnOnce() -> Duration) {
        if let Some(gap) = self.gap.take() {
            if !gap.until.is_zero() {
                self.window.paid();
            }
            if !gap.interrupted {
                let gap = clock().saturating_sub(gap.since);
                self.window.came_after(gap, Window::MOST);
            }
        }
    }

    /// The wait has ended without anything to show for it.
    pub fn given_up(&mut self) {
        if let Some(gap) = self.gap.take()
            && !gap.until.is_zero()
        {
            self.window.failed();
        }
    }
}

/// What the threads that wait on one queue have learnt, each for all of them. Each polls with a copy; of two that poll
/// at the same time, what the later one has learnt stays.
#[derive(Debug)]
pub struct SharedPolling {
    learnt: Mutex<Polling>,
}

/// A wait that is slept through.
#[derive(Debug)]
#[must_use = "how long it took is to be learnt"]
pub struct Slept(Option<Gap>);

impl SharedPolling {
    /// Of a queue that nothing is known of.
    pub fn new() -> Self {
        Self {
            learnt: Mutex::new(Polling::new()),
        }
    }

    /// For a wait of this thread's.
    pub fn begin(&self) -> Polling {
        lock(&self.learnt).clone()
    }

    /// The wait was polled until its end.
    pub fn end(&self, mut polling: Polling, clock: impl FnOnce() -> Duration) {
        polling.over(clock);
        self.store(polling);
    }

    /// The wait is slept through from now on, for as long as that takes: others learn more meanwhile.
    pub fn sleep(&self, mut polling: Polling) -> Slept {
        let slept = Slept(polling.gap.take());
        self.store(polling);
        slept
    }

    /// That sleep is over.
    pub fn wake(&self, Slept(gap): Slept, clock: impl FnOnce() -> Duration) {
        let polling = &mut *lock(&self.learnt);
        polling.gap = gap;
        polling.over(clock);
    }

    fn store(&self, polling: Polling) {
        *lock(&self.learnt) = polling;
    }
}

#[cfg(test)]
mod tests;
