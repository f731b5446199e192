//! What a worker counts of itself, and the time that it spends asleep.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::Counter;

/// The sum of times that begin and end, of which one may last: its reader adds what has passed of that.
///
/// One word, so that a reader never sees less than before. One writer.
#[derive(Debug, Default)]
pub struct Stopwatch(
    /// Twice the sum in nanoseconds. While it runs, the start is taken off, and 1 added.
    AtomicU64,
);

impl Stopwatch {
    /// It runs from `now_ns` on.
    pub fn start(&self, now_ns: u64) {
        let sum = self.0.load(Ordering::Relaxed) >> 1;
        let running = (sum.wrapping_sub(now_ns) << 1) | 1;
        self.0.store(running, Ordering::Release);
    }

    /// It stops.
    pub fn stop(&self, now_ns: u64) {
        let sum = self.read(|| now_ns);
        self.0.store(sum << 1, Ordering::Relaxed);
    }

    /// The sum so far. The clock is read last, so that it is not behind the start.
    #[must_use]
    pub fn read(&self, now_ns: impl FnOnce() -> u64) -> u64 {
        let word = self.0.load(Ordering::Acquire);
        let sum = if word & 1 == 1 {
            (word >> 1).wrapping_add(now_ns())
        } else {
            word >> 1
        };
        sum & (u64::MAX >> 1)
    }
}

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
}

impl WorkerStats {
    /// All counters, of a worker that is `age_ns` old.
    #[must_use]
    pub fn snapshot(&self, age_ns: impl Fn() -> u64) -> WorkerSnapshot {
        WorkerSnapshot {
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            polling_ns: self.polling_ns.get(),
            asleep_ns: self.asleep.read(&age_ns),
            age_ns: age_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_lasts_is_counted_so_far() {
        let watch = Stopwatch::default();
        let at = |now| watch.read(|| now);
        assert_eq!(at(100), 0);
        watch.start(100);
        assert_eq!((at(100), at(150)), (0, 50));
        watch.stop(160);
        assert_eq!((at(160), at(1000)), (60, 60));
        watch.start(u64::MAX >> 3);
        assert_eq!(at((u64::MAX >> 3) + 5), 65);
        watch.stop((u64::MAX >> 3) + 40);
        assert_eq!(at(0), 100);
    }
}
