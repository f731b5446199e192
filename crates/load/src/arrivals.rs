//! When requests are due, with `--rate-iops`.
//!
//! Arrivals depend on the clock alone, never on what became of earlier requests: a server that
//! stalls meets all that arrived meanwhile, and their latency counts from when they were due. A load
//! that waits for the server before it asks again would leave the worst of a stall unmeasured
//! ("coordinated omission").

use std::num::NonZeroU32;

const SECOND: u64 = 1_000_000_000;

/// Requests at fixed intervals. All times are in nanoseconds since the start.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rate: u64,
    taken: u64,
}

impl Arrivals {
    /// `rate` requests a second, the first of them at once.
    pub fn new(rate: NonZeroU32) -> Self {
        Self {
            rate: u64::from(rate.get()),
            taken: 0,
        }
    }

    /// When the next one is due.
    pub fn next(&self) -> u64 {
        // Whole seconds and the rest apart: the product of both would overflow within hours.
        let (seconds, rest) = (self.taken / self.rate, self.taken % self.rate);
        seconds * SECOND + rest * SECOND / self.rate
    }

    /// The next one has been started.
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// How many are due before `end` and have not been started.
    pub fn left_before(&self, end: u64) -> u64 {
        let (seconds, rest) = (end / SECOND, end % SECOND);
        let due = seconds * self.rate + (rest * self.rate).div_ceil(SECOND);
        due.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(rate: u32) -> Arrivals {
        Arrivals::new(NonZeroU32::new(rate).unwrap())
    }

    fn times(rate: u32, count: usize) -> Vec<u64> {
        let mut arrivals = arrivals(rate);
        let take = || {
            let due = arrivals.next();
            arrivals.take();
            due
        };
        std::iter::repeat_with(take).take(count).collect()
    }

    #[test]
    fn arrivals_are_at_fixed_intervals_from_the_start() {
        assert_eq!(times(1000, 3), [0, 1_000_000, 2_000_000]);
        assert_eq!(times(1, 3), [0, SECOND, 2 * SECOND]);
    }

    #[test]
    fn an_interval_that_is_no_whole_number_does_not_drift() {
        let times = times(3, 3001);
        assert_eq!(times[1], 333_333_333);
        assert_eq!(times[3000], 1000 * SECOND);
    }

    #[test]
    fn years_of_the_highest_rate_do_not_overflow() {
        let mut arrivals = arrivals(u32::MAX);
        arrivals.taken = u64::from(u32::MAX) * 86400 * 365;
        assert_eq!(arrivals.next(), 86400 * 365 * SECOND);
        assert_eq!(arrivals.left_before(86400 * 365 * SECOND + 1), 5);
    }

    #[test]
    fn what_is_left_are_those_due_before_the_end() {
        let mut arrivals = arrivals(10);
        assert_eq!(arrivals.left_before(SECOND), 10);
        assert_eq!(arrivals.left_before(SECOND + 1), 11);
        arrivals.take();
        assert_eq!(arrivals.left_before(SECOND), 9);
        assert_eq!(arrivals.left_before(1), 0);
    }
}
