//! What a worker counts of itself, and the time that it spends asleep.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{Counter, Stopwatch};

/// The counters of a worker, which is the only writer.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerStats {
    /// Turns of its loop.
    pub turns: Counter,
    /// Sleeps.
    pub sleeps: Counter,
    /// Time in them.
    pub asleep: Stopwatch,
    /// Time of polls that found nothing, in nanoseconds.
    pub polling_ns: Counter,
    /// The most time at work that a reader was told.
    told_working: AtomicU64,
}

/// The counters of a worker at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// For how long it has existed, in nanoseconds.
    pub age_ns: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Time in them, in nanoseconds.
    pub asleep_ns: u64,
    /// Time of polls that found nothing, in nanoseconds.
    pub polling_ns: u64,
    /// Time at work, or of waiting for its processor, in nanoseconds: the rest. It never goes back, though some time of
    /// polls is known only once they are over; so it may be a little more than the rest.
    pub working_ns: u64,
}

impl WorkerStats {
    /// All counters, of a worker that is `age_ns` old.
    #[must_use]
    pub fn snapshot(&self, age_ns: impl Fn() -> u64) -> WorkerSnapshot {
        let polling_ns = self.polling_ns.get();
        let asleep_ns = self.asleep.read(&age_ns);
        let age_ns = age_ns();
        let rest = age_ns.saturating_sub(asleep_ns.saturating_add(polling_ns));
        let told = self.told_working.fetch_max(rest, Ordering::Relaxed);
        WorkerSnapshot {
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            polling_ns,
            asleep_ns,
            age_ns,
            working_ns: told.max(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn time_at_work_never_goes_back() {
        let stats = WorkerStats::default();
        let clock = Cell::new((0, 0));
        // It takes a while to ask twice, not always as long.
        let working = |now: u64, longer: u64| {
            clock.set((now, longer));
            let tick = || {
                let (now, longer) = clock.get();
                clock.set((now + longer, longer));
                now
            };
            stats.snapshot(tick).working_ns
        };
        stats.asleep.start(100);
        assert_eq!(working(1000, 90), 190);
        assert_eq!(working(2000, 30), 190);
        stats.asleep.stop(3000);
        assert_eq!(working(3500, 0), 600);
        // A poll that has lasted all the time is counted.
        stats.polling_ns.add(500);
        assert_eq!(working(3500, 0), 600);
        assert_eq!(working(5000, 0), 1600);
    }
}
