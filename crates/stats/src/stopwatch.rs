//! Times that begin and end, of which one may last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The sum of times that begin and end, of which one may last: its reader adds what has passed of that.
///
/// One writer.
#[derive(Debug, Default)]
pub struct Stopwatch {
    /// Twice the sum in nanoseconds. While it runs, the start is taken off, and 1 added.
    word: AtomicU64,
    /// The most that a reader was told: one that reads just before it stops may be told a little more than the sum that
    /// is known then.
    told: AtomicU64,
}

impl Stopwatch {
    /// It runs from `now_ns` on.
    pub fn start(&self, now_ns: u64) {
        let sum = self.word.load(Ordering::Relaxed) >> 1;
        let running = (sum.wrapping_sub(now_ns) << 1) | 1;
        self.word.store(running, Ordering::Release);
    }

    /// It stops, if it runs.
    pub fn stop(&self, now_ns: u64) {
        let sum = self.sum(|| now_ns);
        self.word.store(sum << 1, Ordering::Relaxed);
    }

    /// Adds a time that is over, while it does not run.
    pub fn add(&self, ns: u64) {
        let word = self.word.load(Ordering::Relaxed);
        self.word
            .store(word.wrapping_add(ns << 1), Ordering::Relaxed);
    }

    /// Does it run?
    #[must_use]
    pub fn runs(&self) -> bool {
        self.word.load(Ordering::Relaxed) & 1 == 1
    }

    /// The sum so far, and never less than any reader was told.
    #[must_use]
    pub fn read(&self, now_ns: impl FnOnce() -> u64) -> u64 {
        let sum = self.sum(now_ns);
        self.told.fetch_max(sum, Ordering::Relaxed).max(sum)
    }

    /// The clock is read last, so that it is not behind the start.
    fn sum(&self, now_ns: impl FnOnce() -> u64) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        let sum = if word & 1 == 1 {
            (word >> 1).wrapping_add(now_ns())
        } else {
            word >> 1
        };
        sum & (u64::MAX >> 1)
    }
}

/// Times of waiting, by the clock of this process.
#[derive(Debug)]
pub struct Waiting {
    /// From when on times are told.
    origin: Instant,
    watch: Stopwatch,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            watch: Stopwatch::default(),
        }
    }
}

impl Waiting {
    /// A wait begins, if none lasts.
    pub fn begin(&self, now: Instant) {
        if !self.lasts() {
            self.watch.start(self.ns(now));
        }
    }

    /// The wait that lasts is over, if there is one.
    pub fn end(&self, now: Instant) {
        self.watch.stop(self.ns(now));
    }

    /// A wait of so many nanoseconds is over, and none lasts.
    pub fn add(&self, ns: u64) {
        self.watch.add(ns);
    }

    /// Does one last?
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.watch.runs()
    }

    /// The sum of all in nanoseconds, with what has passed of the one that lasts.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.watch.read(|| self.ns(Instant::now()))
    }

    fn ns(&self, at: Instant) -> u64 {
        let passed = at.saturating_duration_since(self.origin);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_that_lasts_is_counted_so_far() {
        let watch = Stopwatch::default();
        let at = |now| watch.read(|| now);
        assert_eq!(at(100), 0);
        watch.start(100);
        assert_eq!((at(100), at(150), watch.runs()), (0, 50, true));
        watch.stop(160);
        assert_eq!((at(160), at(1000), watch.runs()), (60, 60, false));
        watch.stop(170);
        watch.add(3);
        assert_eq!(at(1000), 63);
        watch.start(u64::MAX >> 3);
        assert_eq!(at((u64::MAX >> 3) + 5), 68);
        watch.stop((u64::MAX >> 3) + 40);
        assert_eq!(at(0), 103);
        // One that reads as it stops is told more than was measured then, and nobody less after that.
        watch.start(0);
        assert_eq!(at(20), 123);
        watch.stop(15);
        assert_eq!(at(0), 123);
        watch.add(10);
        assert_eq!(at(0), 128);
    }

    #[test]
    fn a_wait_that_lasts_is_in_the_sum() {
        let waiting = Waiting::default();
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        waiting.add(5);
        waiting.begin(began);
        // One that lasts does not begin again.
        waiting.begin(began + second);
        let (so_far, lasts) = (waiting.sum_ns(), waiting.lasts());
        assert!(lasts && (5..1_000_000_000).contains(&so_far), "{so_far}");
        waiting.end(began + second);
        waiting.end(began + 2 * second);
        assert_eq!((waiting.sum_ns(), waiting.lasts()), (1_000_000_005, false));
    }
}
