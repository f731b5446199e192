//! What a worker counts of itself, and the time that it spends asleep.

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
