//! How long a worker looks before it sleeps: a machine without fd, thread or clock of its own.
//!
//! A sleep costs whoever ends it a system call and the sleeper a wake-up; looking costs this worker's
//! time. What each costs differs from machine to machine. So it looks for as long as looking has
//! paid: the window grows when a sleep turns out to have been short, and shrinks when it was long.
//!
//! ```text
//!            work                        nothing for `window`
//!   ┌────────────────────┐   ┌───────────────────────────────────┐
//!   ▼                    │   │                                   ▼
//! Busy ──nothing──▶ Looking since t                            Asleep
//!   ▲                                                             │
//!   └── woken: slept less than `max` ? window = 2 · gap : window / 2 ┘
//! ```

use std::time::Duration;

/// When does a worker look in vain?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// For as long as looking has paid lately.
    #[default]
    Adaptive,
    /// Never: it sleeps once there is nothing to do.
    Never,
    /// Always: it does not sleep.
    Always,
}

/// Did a turn of the loop find anything?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A completion, a chain, a command.
    Made,
    /// Nothing.
    None,
}

impl Progress {
    /// Was progress made in either?
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Made { self } else { other }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look again.
    Spin,
    /// Arm, look once more, and sleep.
    Block,
}

/// Below this a window is not worth its bookkeeping and becomes 0.
const LEAST: Duration = Duration::from_micros(4);

/// The machine.
#[derive(Clone, Debug)]
pub struct Policy {
    polling: Polling,
    max: Duration,
    window: Duration,
    /// When the first of the turns without progress ended.
    idle_since: Option<Duration>,
}

impl Policy {
    /// The default longest time to look in vain: chosen to be more than a sleep costs, not yet measured.
    pub const DEFAULT_MAX: Duration = Duration::from_micros(250);

    /// A machine that looks in vain for at most `max`.
    #[must_use]
    pub fn new(polling: Polling, max: Duration) -> Self {
        Self {
            polling,
            max,
            window: max / 4,
            idle_since: None,
        }
    }

    /// A turn has ended. `clock` tells the time, since any moment; it is asked only when there was no
    /// progress.
    #[inline]
    pub fn after_turn(&mut self, progress: Progress, clock: impl FnOnce() -> Duration) -> Wait {
        match (progress, self.polling) {
            (Progress::Made, _) => {
                self.idle_since = None;
                Wait::Spin
            }
            (Progress::None, Polling::Always) => Wait::Spin,
            (Progress::None, Polling::Never) => Wait::Block,
            (Progress::None, Polling::Adaptive) => {
                let now = clock();
                let since = *self.idle_since.get_or_insert(now);
                if now.saturating_sub(since) < self.window {
                    Wait::Spin
                } else {
                    Wait::Block
                }
            }
        }
    }

    /// A sleep has ended at `now`. Had it paid to look for longer?
    pub fn woke(&mut self, now: Duration) {
        let gap = self
            .idle_since
            .take()
            .map_or(Duration::ZERO, |since| now.saturating_sub(since));
        self.window = if gap < self.max {
            (gap * 2).max(LEAST).min(self.max)
        } else {
            self.window / 2
        };
        if self.window < LEAST {
            self.window = Duration::ZERO;
        }
    }

    /// How long it looks in vain now.
    #[must_use]
    pub fn window(&self) -> Duration {
        match self.polling {
            Polling::Adaptive => self.window,
            Polling::Never => Duration::ZERO,
            Polling::Always => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Progress::{Made, None};
    use Wait::{Block, Spin};

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn policy(polling: Polling) -> Policy {
        Policy::new(polling, us(200))
    }

    #[test]
    fn each_decision_while_awake() {
        let mut policy = policy(Polling::Adaptive);
        assert_eq!(policy.window(), us(50));
        for (progress, now, expected) in [
            (Made, 0, Spin),
            (None, 10, Spin),
            (None, 59, Spin),
            (None, 60, Block),
            (Made, 61, Spin),
            (None, 100, Spin),
            (None, 149, Spin),
            (Made, 150, Spin),
            (None, 151, Spin),
            (None, 201, Block),
        ] {
            assert_eq!(
                policy.after_turn(progress, || us(now)),
                expected,
                "at {now} µs"
            );
        }
    }

    /// A gap of `gap` µs between two requests, with a sleep wherever the policy wants one.
    fn gap(policy: &mut Policy, gap: u64) -> Wait {
        let _ = policy.after_turn(Made, || us(0));
        let _ = policy.after_turn(None, || us(0));
        let end = policy.after_turn(None, || us(gap));
        if end == Block {
            policy.woke(us(gap));
        }
        end
    }

    #[test]
    fn the_window_grows_over_gaps_that_are_short_enough() {
        let mut policy = policy(Polling::Adaptive);
        assert_eq!(gap(&mut policy, 80), Block);
        assert_eq!(policy.window(), us(160));
        assert_eq!(gap(&mut policy, 80), Spin, "the second time, looking pays");
    }

    #[test]
    fn the_window_closes_over_gaps_that_are_too_long() {
        let mut policy = policy(Polling::Adaptive);
        for _ in 0..8 {
            assert_eq!(gap(&mut policy, 10_000), Block);
        }
        assert_eq!(policy.window(), Duration::ZERO);
        assert_eq!(gap(&mut policy, 1), Block);
        assert_eq!(policy.window(), LEAST, "and opens again");
    }

    #[test]
    fn never_and_always_mean_it() {
        let mut never = policy(Polling::Never);
        assert_eq!(never.after_turn(Made, || us(0)), Spin);
        assert_eq!(never.after_turn(None, || us(0)), Block);
        let mut always = policy(Polling::Always);
        assert_eq!(always.after_turn(None, || us(1_000_000)), Spin);
    }

    #[test]
    fn the_clock_is_not_asked_while_there_is_work() {
        let mut policy = policy(Polling::Adaptive);
        let _ = policy.after_turn(Made, || panic!("the clock was asked"));
    }
}
