//! How much of the time may go into looking in vain.

use std::time::Duration;

/// A share of the time, which is saved up for a while.
#[derive(Clone, Debug)]
pub struct Budget {
    percent: u32,
    left: Duration,
    at: Duration,
}

/// Over how much time looking may be spread: what was not spent for longer than this is gone.
const MEMORY: Duration = Duration::from_millis(10);

impl Budget {
    /// `percent` of all time, all of which is there to begin with.
    pub fn new(percent: u8) -> Self {
        let percent = u32::from(percent.min(100));
        Self {
            percent,
            left: MEMORY * percent / 100,
            at: Duration::ZERO,
        }
    }

    /// How long may be looked from `now` on?
    pub fn left(&mut self, now: Duration) -> Duration {
        if self.percent == 100 {
            return Duration::MAX;
        }
        let earned = now.saturating_sub(self.at).min(MEMORY) * self.percent / 100;
        self.at = now;
        self.left = (self.left + earned).min(MEMORY * self.percent / 100);
        self.left
    }

    /// So long was looked.
    pub fn spend(&mut self, looked: Duration) {
        self.left = self.left.saturating_sub(looked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_spent_than_the_share() {
        for percent in [0, 1, 25, 99] {
            let mut budget = Budget::new(percent);
            let (mut now, mut looked) = (Duration::ZERO, Duration::ZERO);
            // Looks for as long as it may, and then sleeps for 100 µs.
            while now < Duration::from_secs(2) {
                let look = budget.left(now).min(Duration::from_micros(250));
                budget.spend(look);
                looked += look;
                now += look + Duration::from_micros(100);
            }
            let share = looked.as_secs_f64() / now.as_secs_f64() * 100.0;
            assert!(share <= f64::from(percent) + 0.6, "{share} of {percent} %");
            assert!(
                share >= f64::from(percent.min(70)) * 0.95,
                "{share} of {percent} %"
            );
        }
    }

    #[test]
    fn all_of_the_time_is_no_bound() {
        let mut budget = Budget::new(100);
        budget.spend(Duration::from_secs(1));
        assert_eq!(budget.left(Duration::ZERO), Duration::MAX);
    }
}
