//! How long a worker looks before it sleeps: a machine without fd, thread or clock of its own.
//!
//! A sleep costs whoever ends it a system call and the sleeper a wake-up; looking costs this worker's
//! time. So it looks for as long as looking has paid, by what a sleep costs on this machine: each source
//! of work has a window ([`source`]) that follows what it brings, and the worker looks while any window is
//! open. It gives way to others who want its processor ([`crowd`]), and keeps to the share of the time that it
//! may spend ([`budget`]).
//!
//! ```text
//!            work                    nothing, and no window is open
//!   ┌────────────────────┐   ┌───────────────────────────────────┐
//!   ▼                    │   │                                   ▼
//! Busy ──nothing──▶ Looking since t                            Asleep
//!   ▲                                                             │
//!   └──── woken: the source that brings something learns ─────────┘
//! ```

mod budget;
mod crowd;
mod source;

use std::ops::BitOr;
use std::time::Duration;

use budget::Budget;
use crowd::Crowd;
use source::{Source, Worth};

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

/// How much a worker may look in vain where that is [`Polling::Adaptive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest time at once; `None`: as long as pays by what a sleep costs.
    pub max: Option<Duration>,
    /// The share of the time, in percent.
    pub cpu: u8,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max: None,
            cpu: 100,
        }
    }
}

/// What a turn of the loop has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So many chains.
    pub chains: u16,
    /// So many completions.
    pub completions: u16,
    /// Commands.
    pub commands: bool,
}

impl Progress {
    /// Nothing.
    pub const NONE: Self = Self {
        chains: 0,
        completions: 0,
        commands: false,
    };

    /// Was there any?
    #[inline]
    #[must_use]
    pub fn any(self) -> bool {
        self.chains > 0 || self.completions > 0 || self.commands
    }
}

impl BitOr for Progress {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self {
            chains: self.chains.saturating_add(other.chains),
            completions: self.completions.saturating_add(other.completions),
            commands: self.commands | other.commands,
        }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look again.
    Spin,
    /// Let others run who wait for this processor, if there are any, and look again.
    Yield,
    /// Arm, look once more, and sleep.
    Block,
}

/// A time without work: looked through, or slept through.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// From when on looking is to be paid for.
    looking: Duration,
    /// Until when to look.
    until: Duration,
    /// The last look, or the end of a sleep.
    last: Duration,
    slept: bool,
    /// After how many turns in vain others last ran.
    others: Option<u32>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Policy {
    polling: Polling,
    bound: Option<Duration>,
    /// For how long to look in vain.
    worth: Worth,
    rings: Source,
    completions: Source,
    /// What the rings bring after completions, however long these took: the drivers' answers.
    answers: Source,
    /// The last gap began with completions, and no chains have come since.
    unanswered: bool,
    budget: Budget,
    crowd: Crowd,
    /// What has been brought since the last gap began.
    brought: Progress,
    /// Until when any source was to be looked at.
    until: Duration,
    /// Turns in a row that found nothing.
    vain: u32,
    gap: Option<Gap>,
    /// The last gap was not worth looking through.
    hasty: bool,
}

/// The clock is asked in every so many turns that find nothing: reading it takes longer than such a turn.
const CLOCK_EVERY: u32 = 8;

/// How much longer than a sleep costs one looks in vain. A user waits for each microsecond of a sleep's
/// price; of those spent looking, none are anybody's who wants them (see [`crowd`]), but they are not free.
const PATIENCE: u32 = 4;

/// The same for what comes many at a time. Who has waited for so many prices of a sleep hardly feels one more.
const MOST_PATIENCE: u32 = 16;

/// Between these a sleep is believed to cost something: what was measured knows nothing of a processor whose caches
/// and clock have gone down meanwhile, and something of chance.
const COSTS: [Duration; 2] = [Duration::from_micros(25), Duration::from_micros(100)];

impl Policy {
    /// A machine of such bounds, where a sleep costs so much.
    #[must_use]
    pub fn new(polling: Polling, bounds: Bounds, sleep_costs: Duration) -> Self {
        let worth = worth(bounds.max, sleep_costs);
        Self {
            polling,
            bound: bounds.max,
            worth,
            rings: Source::new(worth.single / 4),
            completions: Source::new(worth.single / 4),
            answers: Source::new(worth.single / 4),
            unanswered: false,
            budget: Budget::new(bounds.cpu),
            crowd: Crowd::default(),
            brought: Progress::NONE,
            until: Duration::ZERO,
            vain: 0,
            gap: None,
            hasty: false,
        }
    }

    /// A turn has ended. `clock` tells the time, since any moment; it is asked only when there was no
    /// progress for some turns.
    #[inline]
    pub fn after_turn(&mut self, progress: Progress, clock: impl FnOnce() -> Duration) -> Wait {
        if progress.any() {
            if self.vain > 0 {
                self.found(progress);
                self.vain = 0;
            }
            self.brought = self.brought | progress;
            return Wait::Spin;
        }
        match self.polling {
            Polling::Always => Wait::Spin,
            Polling::Never => Wait::Block,
            Polling::Adaptive => {
                self.vain = self.vain.wrapping_add(1);
                // Where the last gap was slept through at once, this one is likely to be.
                if self.vain.is_multiple_of(CLOCK_EVERY) || (self.hasty && self.vain == 1) {
                    self.look_on(clock())
                } else {
                    Wait::Spin
                }
            }
        }
    }

    /// Nothing was found by `now`.
    fn look_on(&mut self, now: Duration) -> Wait {
        let gap = match self.gap {
            Some(gap) => gap,
            None => self.gap_from(now),
        };
        let ends = now >= gap.until;
        if ends {
            self.budget.spend(now.saturating_sub(gap.looking));
        }
        self.gap = Some(Gap {
            looking: if ends { now } else { gap.looking },
            last: now,
            ..gap
        });
        if ends {
            Wait::Block
        } else if self.crowd.is_due(CLOCK_EVERY) {
            Wait::Yield
        } else {
            Wait::Spin
        }
    }

    /// A gap begins: until when is it to be looked through?
    fn gap_from(&mut self, now: Duration) -> Gap {
        let looks = !self.crowd.is_there(now);
        let Progress {
            chains,
            completions,
            ..
        } = self.brought;
        if chains > 0 {
            self.until = self.until.max(self.rings.quiet(now, chains, looks));
        }
        if completions > 0 {
            let more = self.completions.quiet(now, completions, looks);
            let answers = self.answers.quiet(now, completions, looks);
            self.until = self.until.max(more).max(answers);
        }
        self.unanswered = completions > 0;
        self.brought = Progress::NONE;
        let within = now.saturating_add(self.budget.left(now));
        let until = if looks { self.until.min(within) } else { now };
        self.hasty = until <= now;
        Gap {
            looking: now,
            until,
            last: now,
            slept: false,
            others: None,
        }
    }

    /// A gap has ended, if it was long enough to be called one.
    fn found(&mut self, progress: Progress) {
        let Some(gap) = self.gap.take() else { return };
        self.budget.spend(gap.last.saturating_sub(gap.looking));
        // What is there as soon as others have run came because they did, not because it was looked for.
        let from_others = |since: u32| self.vain.wrapping_sub(since) < CLOCK_EVERY;
        let slept = gap.slept || gap.others.is_some_and(from_others);
        if progress.chains > 0 {
            self.rings.brings(gap.last, slept, self.worth);
            if std::mem::take(&mut self.unanswered) {
                self.answers.brings(gap.last, slept, self.worth);
            }
        } else if slept && std::mem::take(&mut self.unanswered) {
            self.answers.brings_nothing();
        }
        if progress.completions > 0 {
            self.completions.brings(gap.last, slept, self.worth);
        }
    }

    /// Others were let run from `before` until `now`.
    pub fn gave_way(&mut self, before: Duration, now: Duration) {
        let took = now.saturating_sub(before);
        self.crowd.gave_way(now, took);
        if let Some(gap) = &mut self.gap {
            // That was nobody's looking.
            gap.looking += took;
            if Crowd::ran(took) {
                gap.others = Some(self.vain);
            }
            if self.crowd.is_there(now) {
                gap.until = now;
            }
        }
    }

    /// A sleep has ended at `now`. By now a sleep costs so much.
    pub fn woke(&mut self, now: Duration, sleep_costs: Duration) {
        self.worth = worth(self.bound, sleep_costs);
        if let Some(gap) = &mut self.gap {
            (gap.looking, gap.last, gap.slept) = (now, now, true);
        }
    }
}

fn worth(bound: Option<Duration>, sleep_costs: Duration) -> Worth {
    let [least, most] = COSTS;
    let gap = sleep_costs.clamp(least, most);
    let single = bound.unwrap_or(gap * PATIENCE);
    let most = bound.unwrap_or(gap * MOST_PATIENCE);
    Worth { gap, single, most }
}

#[cfg(test)]
mod tests;
