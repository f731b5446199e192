//! How long requests took, in nanoseconds.

use pollux_driver::CompletionMode;

/// A number of times, by their length.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// What is longer counts as this: an hour.
const MOST: u64 = 3_600_000_000_000;
/// Half of what a user can tell apart: 1 in 1000.
const DIGITS: u8 = 3;

/// One without any, of all latencies that there may be.
pub fn histogram() -> Histogram {
    Histogram::new_with_bounds(1, MOST, DIGITS).expect("the bounds are as it wants them")
}

/// The time that so many of them did not exceed.
#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
pub fn microseconds(latencies: &Histogram, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// The latencies of one direction, those of polled requests apart from the others.
#[derive(Clone, Debug)]
pub struct Split {
    /// Of polled requests.
    pub polled: Histogram,
    /// Of call-driven requests.
    pub called: Histogram,
    /// Of requests that were due at a time: how much later they were started. Their latency begins
    /// when they were due, so this is a part of it.
    pub late: Histogram,
}

impl Default for Split {
    /// None so far.
    fn default() -> Self {
        Self {
            polled: histogram(),
            called: histogram(),
            late: histogram(),
        }
    }
}

impl Split {
    /// Of both.
    pub fn all(&self) -> Histogram {
        let mut all = self.polled.clone();
        add(&mut all, &self.called);
        all
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.polled, &other.polled);
        add(&mut self.called, &other.called);
        add(&mut self.late, &other.late);
    }

    /// How many requests.
    pub fn count(&self) -> u64 {
        self.polled.len() + self.called.len()
    }
}

/// The latencies of all requests.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Of reads.
    pub read: Split,
    /// Of writes.
    pub write: Split,
}

impl Latencies {
    /// Of all requests.
    pub fn all(&self) -> Histogram {
        let mut all = self.read.all();
        add(&mut all, &self.write.all());
        all
    }

    #[inline]
    fn of(&mut self, direction: Direction) -> &mut Split {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// A request that was due at a time has been started so much later.
    pub fn started(&mut self, direction: Direction, late: u64) {
        self.of(direction).late.saturating_record(late);
    }

    /// A request has ended.
    #[inline]
    pub fn ended(&mut self, direction: Direction, completion: CompletionMode, ns: u64) {
        let split = self.of(direction);
        let histogram = if completion == CompletionMode::Polled {
            &mut split.polled
        } else {
            &mut split.called
        };
        histogram.saturating_record(ns);
    }

    /// Adds those of another job.
    pub fn add(&mut self, other: &Self) {
        self.read.add(&other.read);
        self.write.add(&other.write);
    }
}

fn add(to: &mut Histogram, other: &Histogram) {
    to.add(other).expect("all have the same bounds");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_kept_apart_and_merge() {
        let mut one = Latencies::default();
        one.ended(Direction::Read, CompletionMode::Polled, 1000);
        one.ended(Direction::Read, CompletionMode::Call, 9000);
        let mut all = Latencies::default();
        all.ended(Direction::Write, CompletionMode::Call, u64::MAX);
        all.add(&one);
        assert_eq!(all.read.polled.len(), 1);
        assert_eq!(all.read.called.len(), 1);
        assert_eq!(all.read.all().len(), all.read.count());
        assert!(all.read.all().max() >= 9000);
        assert_eq!(all.write.count(), 1);
    }
}
