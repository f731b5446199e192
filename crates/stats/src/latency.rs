//! How long requests took, by what they asked for.

use crate::{Counter, Kind};

/// The times of requests in buckets: four for each power of two, so a bucket's ends are a quarter apart at most.
///
/// One writer, as for a [`Counter`].
#[derive(Debug)]
pub struct Latencies {
    kinds: Box<[OfKind]>,
}

#[derive(Debug)]
struct OfKind {
    sum_ns: Counter,
    buckets: Box<[Counter]>,
}

/// The times of requests of one kind at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// How many fell into each bucket; see [`Times::bound_ns`].
    pub buckets: Vec<u64>,
}

/// What is shorter than 2^7 ns is not told apart.
const FIRST_POWER: u32 = 7;
/// What is longer than 2^35 ns, half a minute, neither.
const LAST_POWER: u32 = 35;
/// Buckets of a power of two, as a power of two.
const SPLIT: u32 = 2;
const BUCKETS: usize = ((LAST_POWER - FIRST_POWER) << SPLIT) as usize + 2;

impl Default for Latencies {
    fn default() -> Self {
        let kind = || OfKind {
            sum_ns: Counter::default(),
            buckets: (0..BUCKETS).map(|_| Counter::default()).collect(),
        };
        Self {
            kinds: (0..Kind::COUNT).map(|_| kind()).collect(),
        }
    }
}

impl Latencies {
    /// Counts a request of `kind` that took so long.
    #[inline]
    pub fn record(&self, kind: Kind, took_ns: u64) {
        let of = &self.kinds[kind as usize];
        of.sum_ns.add(took_ns);
        of.buckets[bucket(took_ns)].add(1);
    }

    /// What was counted of `kind` so far.
    #[must_use]
    pub fn times(&self, kind: Kind) -> Times {
        let of = &self.kinds[kind as usize];
        Times {
            sum_ns: of.sum_ns.get(),
            buckets: of.buckets.iter().map(Counter::get).collect(),
        }
    }
}

impl Times {
    /// The longest time that falls into bucket `at`, in nanoseconds. `None`: the last one has all that is longer.
    #[must_use]
    pub fn bound_ns(at: usize) -> Option<u64> {
        let steps = u32::try_from(at).ok().filter(|_| at < BUCKETS - 1)?;
        let (power, part) = (steps >> SPLIT, steps & ((1 << SPLIT) - 1));
        let base = 1u64 << (FIRST_POWER + power);
        Some(base + ((base >> SPLIT) * u64::from(part)))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds those of another queue.
    pub fn add(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.buckets
            .resize(self.buckets.len().max(other.buckets.len()), 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
    }
}

/// Where a time is counted: bounds belong to what is below them.
#[inline]
fn bucket(took_ns: u64) -> usize {
    let below = took_ns.saturating_sub(1);
    if below < 1 << FIRST_POWER {
        return 0;
    }
    let power = below.ilog2();
    let part = (below >> (power - SPLIT)) & ((1 << SPLIT) - 1);
    let steps = u64::from((power - FIRST_POWER) << SPLIT) + part + 1;
    usize::try_from(steps).map_or(BUCKETS - 1, |steps| steps.min(BUCKETS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_ends_at_its_bound() {
        let bounds = (0..).map_while(Times::bound_ns);
        for (at, bound) in bounds.enumerate() {
            assert_eq!((bucket(bound), bucket(bound + 1)), (at, at + 1), "{bound}");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn bounds_are_a_quarter_apart_at_most_and_hold_the_powers_of_two() {
        let bounds: Vec<_> = (0..).map_while(Times::bound_ns).collect();
        assert_eq!(bounds.len(), BUCKETS - 1);
        assert!(bounds.windows(2).all(|two| two[1] - two[0] <= two[0] / 4));
        for power in FIRST_POWER..=LAST_POWER {
            assert!(bounds.contains(&(1 << power)), "{power}");
        }
    }

    #[test]
    fn kinds_are_counted_apart_and_queues_add_up() {
        let latencies = Latencies::default();
        latencies.record(Kind::Read, 1000);
        latencies.record(Kind::Read, 3000);
        latencies.record(Kind::Flush, 7);
        let mut reads = latencies.times(Kind::Read);
        assert_eq!((reads.count(), reads.sum_ns), (2, 4000));
        assert_eq!(latencies.times(Kind::Write).count(), 0);
        reads.add(&latencies.times(Kind::Flush));
        assert_eq!(
            (reads.count(), reads.sum_ns, reads.buckets[0]),
            (3, 4007, 1)
        );
        let mut none = Times::default();
        none.add(&reads);
        assert_eq!(none, reads);
    }
}
