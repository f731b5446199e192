//! What is counted into: one writer, any number of readers.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A number that only grows (and wraps at 2^64).
///
/// It has **one** writer at a time: [`Counter::add`] loads and stores, which is cheaper than a locked
/// addition, and two threads that add at once lose counts. Where there are several, each of them uses
/// [`Counter::add_shared`].
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`.
    #[inline]
    pub fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(more), Ordering::Relaxed);
    }

    /// Adds `more`, beside other threads that do so too: a locked addition. A counter is added to in this
    /// way always, or never.
    #[inline]
    pub fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// What it has come to.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that says how things are now. One writer, as for a [`Counter`].
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// It is this now.
    #[inline]
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// What it is.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often which sizes occurred, by powers of two: bucket `n` counts sizes from 2^n to 2^(n+1) - 1,
/// the last one all that is larger. One writer, as for a [`Counter`].
#[derive(Debug, Default)]
pub struct Histogram {
    sum: Counter,
    buckets: [Counter; Self::BUCKETS],
}

impl Histogram {
    /// Enough for batches of the largest queue there is: 32768 entries.
    pub const BUCKETS: usize = 16;

    /// Counts one occurrence of `size`. Nothing, a `size` of 0, is no occurrence.
    #[inline]
    pub fn record(&self, size: u64) {
        if let Some(power) = size.checked_ilog2() {
            self.sum.add(size);
            self.buckets[(power as usize).min(Self::BUCKETS - 1)].add(1);
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn snapshot(&self) -> Distribution {
        Distribution {
            sum: self.sum.get(),
            buckets: std::array::from_fn(|at| self.buckets[at].get()),
        }
    }
}

/// How often which sizes occurred: see [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Distribution {
    /// The sum of all sizes.
    pub sum: u64,
    /// How often by power of two.
    pub buckets: [u64; Histogram::BUCKETS],
}

impl Distribution {
    /// How many sizes were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their mean; `None` when there are none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        ratio(self.sum, self.count())
    }

    /// The sizes that the highest bucket in use stands for, first and last; `None` when there are none.
    #[must_use]
    pub fn highest(&self) -> Option<(u64, u64)> {
        let bucket = self.buckets.iter().rposition(|&count| count > 0)?;
        let last = if bucket == Histogram::BUCKETS - 1 {
            u64::MAX
        } else {
            (2 << bucket) - 1
        };
        Some((1 << bucket, last))
    }

    pub(crate) fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            sum: with(self.sum, other.sum),
            buckets: std::array::from_fn(|at| with(self.buckets[at], other.buckets[at])),
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "15 digits are enough for a ratio"
)]
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_wraps_instead_of_panicking() {
        let counter = Counter::default();
        counter.add(u64::MAX);
        counter.add(3);
        assert_eq!(counter.get(), 2);
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        let histogram = Histogram::default();
        for size in [0, 1, 2, 3, 4, 1 << 15, u64::MAX >> 1] {
            histogram.record(size);
        }
        let mut expected = [0; Histogram::BUCKETS];
        expected[0] = 1;
        expected[1] = 2;
        expected[2] = 1;
        expected[15] = 2;
        assert_eq!(histogram.snapshot().buckets, expected);
    }
}
