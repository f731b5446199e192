//! A lock that can tell how long it was held and waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::notify::doorbell::Holding;
use crate::sync::{Mutex, MutexGuard, lock};
use pollux_threads::usage;

/// A mutex, recorded if that was asked for.
pub struct Lock<T> {
    inside: Mutex<T>,
    /// Behind a lock of its own, which is taken when the other is released: what it takes to record is no
    /// part of what is recorded.
    times: Option<Mutex<LockTimes>>,
}

/// How long a queue's lock was held and waited for, in nanoseconds.
///
/// Recording reads the clock three times and asks the kernel twice how often the thread was preempted;
/// of that, the clock is read twice while the lock is held, where `hold` begins and ends. What that costs is in
/// `docs/notes/0004-kicks-after-the-lock.md`.
#[derive(Clone, Debug)]
pub struct LockTimes {
    /// From taking it to releasing it.
    pub hold: Histogram<u64>,
    /// From asking for it to having it.
    pub wait: Histogram<u64>,
    /// Times that the thread was preempted while it waited for the lock or held it (not: slept because
    /// it had to wait). Neither is in the histograms.
    pub preempted: u64,
}

/// The lock, held.
pub struct Guard<'a, T> {
    inside: Option<MutexGuard<'a, T>>,
    started: Option<Started<'a>>,
}

/// Of a lock that is recorded.
struct Started<'a> {
    times: &'a Mutex<LockTimes>,
    preemptions: u64,
    waited: Duration,
    at: Instant,
    _holding: Holding,
}

impl<T> Lock<T> {
    /// Not recorded.
    pub fn new(value: T) -> Self {
        Self {
            inside: Mutex::new(value),
            times: None,
        }
    }

    /// Records from now on.
    pub fn record(&mut self) {
        self.times = Some(Mutex::new(LockTimes::new()));
    }

    /// What was recorded so far.
    pub fn times(&self) -> Option<LockTimes> {
        self.times.as_ref().map(|times| lock(times).clone())
    }

    /// Takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match &self.times {
            None => Guard {
                inside: Some(lock(&self.inside)),
                started: None,
            },
            Some(times) => self.lock_recorded(times),
        }
    }

    #[cold]
    fn lock_recorded<'a>(&'a self, times: &'a Mutex<LockTimes>) -> Guard<'a, T> {
        let (preemptions, asked) = (usage().preemptions, Instant::now());
        let inside = lock(&self.inside);
        let at = Instant::now();
        Guard {
            inside: Some(inside),
            started: Some(Started {
                times,
                preemptions,
                waited: at.duration_since(asked),
                at,
                _holding: Holding::begin(),
            }),
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

impl LockTimes {
    fn new() -> Self {
        // Up to a minute, to three digits.
        let histogram =
            || Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are valid");
        Self {
            hold: histogram(),
            wait: histogram(),
            preempted: 0,
        }
    }

    /// What was recorded since `before`, a copy of the same times.
    ///
    /// # Panics
    ///
    /// Where `before` has what these times have not.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        let earlier = "what was recorded stays recorded";
        self.hold.subtract(&before.hold).expect(earlier);
        self.wait.subtract(&before.wait).expect(earlier);
        self.preempted -= before.preempted;
        self
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.inside.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let Some(started) = self.started.take() else {
            return;
        };
        let held = started.at.elapsed();
        self.inside = None;
        let preempted = usage().preemptions != started.preemptions;
        let mut times = lock(started.times);
        if preempted {
            times.preempted += 1;
        } else {
            record(&mut times.wait, started.waited);
            record(&mut times.hold, held);
        }
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("recorded", &self.times.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
