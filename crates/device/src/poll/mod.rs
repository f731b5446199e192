//! When a worker polls and when it sleeps: a machine without descriptor, thread or clock of its own.
//!
//! A worker polls while a wake-up saved is a notable share of what the request takes anyway, and while no other thread
//! wants its processor; otherwise it sleeps. What it waits for are two kinds of events, each with a [`Window`]: the
//! driver's next chain, and the disk's next completion.
//!
//! ```text
//!          something                nothing within the windows, or others want the processor
//!   ┌────────────────────┐   ┌──────────────────────────────────────────────┐
//!   ▼                    │   │                                              ▼
//! Busy ── nothing ──▶ polling, yields now and then                        asleep
//!   ▲                                                                        │
//!   └────────────────────────────── woken ───────────────────────────────────┘
//! ```

mod timer;

use std::ops::BitOr;
use std::time::Duration;

use pollux_disk::wait::{Neighbours, Window, Yielded};

use timer::{CLOCK_EVERY, Timer};

/// When does a worker poll?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// For as long as that has paid lately.
    #[default]
    Adaptive,
    /// Never: it sleeps once there is nothing to do.
    Never,
    /// Always: it does not sleep.
    Always,
}

/// How much a worker may poll where that is [`Polling::Adaptive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The longest time at once.
    pub max: Duration,
    /// The share of the time, in percent.
    pub cpu: u8,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max: Window::MOST,
            cpu: 100,
        }
    }
}

/// What a turn of the loop has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So many chains.
    pub chains: u16,
    /// So many completions.
    pub completions: u16,
    /// Commands.
    pub commands: bool,
    /// So much work of the worker's own, in bytes that it copies.
    pub work: u64,
}

impl Progress {
    /// Nothing.
    pub const NONE: Self = Self {
        chains: 0,
        completions: 0,
        commands: false,
        work: 0,
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
            work: self.work.saturating_add(other.work),
        }
    }
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Poll again.
    Spin,
    /// Let others run that wait for this processor, if there are any, and poll again.
    Yield,
    /// Arm, poll once more, and sleep.
    Block,
}

/// One kind of event, in a time without any.
#[derive(Clone, Copy, Debug, Default)]
struct Awaited {
    /// Is it expected?
    is_due: bool,
    /// Until when it is polled for. Zero: not, or not any more.
    until: Duration,
}

/// A time without events: polled through, or slept through.
#[derive(Clone, Copy, Debug)]
struct Gap {
    since: Duration,
    /// The last poll that read the clock, or the end of a sleep.
    last: Duration,
    driver: Awaited,
    disk: Awaited,
    /// The longest window that was allowed.
    most: Duration,
    /// Requests that the disks work on.
    in_flight: u32,
    /// It is, or was, polled for, and that is not counted yet.
    is_owed: bool,
    /// Does its length say nothing? Others ran in it, or the budget had it slept through.
    is_void: bool,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Policy {
    polling: Polling,
    bounds: Bounds,
    driver: Window,
    disk: Window,
    /// How long a disk takes for a request: a mean of the last few.
    service: Duration,
    /// How long the disk has been waited for since a completion, in gaps that chains have ended.
    waited: Duration,
    /// What was found since the last gap began.
    brought: Progress,
    /// Turns in a row that found nothing.
    empty: u32,
    neighbours: Neighbours,
    gap: Option<Gap>,
    /// There was no poll in the last gap: the next is likely to have none.
    is_closed: bool,
    /// No polls before this, for the sake of [`Bounds::cpu`].
    resumes: Duration,
    timer: Timer,
}

/// A disk that takes longer for a request is slow: a wake-up saved, some 25 µs, is less than a seventh of it.
const SLOW: Duration = Duration::from_micros(150);

/// The longest window on a slow disk.
const CHEAP: Duration = Duration::from_micros(10);

/// The mean of what a disk takes is over so many gaps.
const MEAN: u32 = 8;

impl Policy {
    /// A machine of such bounds.
    #[must_use]
    pub fn new(polling: Polling, bounds: Bounds) -> Self {
        Self {
            polling,
            bounds,
            driver: Window::new(),
            disk: Window::new(),
            service: Duration::ZERO,
            waited: Duration::ZERO,
            brought: Progress::NONE,
            empty: 0,
            neighbours: Neighbours::new(),
            gap: None,
            is_closed: false,
            resumes: Duration::ZERO,
            timer: Timer::default(),
        }
    }

    /// A turn has ended. `clock` tells the time, since any moment, and `in_flight` how many requests the disks work on;
    /// they are asked only when there was no progress for some turns.
    #[inline]
    pub fn after_turn(
        &mut self,
        progress: Progress,
        clock: impl FnOnce() -> Duration,
        in_flight: impl FnOnce() -> u32,
    ) -> Wait {
        if progress.any() {
            if self.empty > 0 {
                self.found(progress);
                self.timer.found_after(self.empty);
                self.empty = 0;
            }
            self.brought = self.brought | progress;
            return Wait::Spin;
        }
        match self.polling {
            Polling::Always => {
                self.empty = self.empty.wrapping_add(1);
                if self.empty.is_multiple_of(CLOCK_EVERY) {
                    self.timer.polled(clock());
                }
                Wait::Spin
            }
            Polling::Never => Wait::Block,
            Polling::Adaptive => {
                self.empty = self.empty.wrapping_add(1);
                let sleeps = self.empty == 1 && self.is_closed;
                if sleeps || self.empty.is_multiple_of(CLOCK_EVERY) {
                    let now = clock();
                    self.timer.polled(now);
                    self.poll_on(now, in_flight)
                } else {
                    Wait::Spin
                }
            }
        }
    }

    /// How long polls took that found nothing, in nanoseconds, since this was asked last. Of a few in a row, which no
    /// look at the clock is worth, that is what others took.
    #[inline]
    pub fn take_polled_ns(&mut self) -> u64 {
        self.timer.take_ns()
    }

    /// Nothing was found by `now`.
    fn poll_on(&mut self, now: Duration, in_flight: impl FnOnce() -> u32) -> Wait {
        let mut gap = match self.gap {
            Some(gap) => gap,
            None => self.gap_from(now, in_flight()),
        };
        gap.last = now;
        for (awaited, window) in [
            (&mut gap.driver, &mut self.driver),
            (&mut gap.disk, &mut self.disk),
        ] {
            if awaited.until > Duration::ZERO && now >= awaited.until {
                awaited.until = Duration::ZERO;
                window.failed();
            }
        }
        let is_over = gap.driver.until.max(gap.disk.until).is_zero();
        // Once: what follows is slept through, whatever wakes the worker for nothing.
        if is_over && std::mem::take(&mut gap.is_owed) {
            self.spent(&gap);
        }
        self.gap = Some(gap);
        if is_over {
            Wait::Block
        } else if self.neighbours.is_due(CLOCK_EVERY) {
            Wait::Yield
        } else {
            Wait::Spin
        }
    }

    /// A gap begins. What is expected, and for how long is it polled for?
    ///
    /// The driver's turn is after completions, or where nothing is in flight. On a slow disk little is saved by a poll,
    /// whichever of the two is waited for.
    fn gap_from(&mut self, now: Duration, in_flight: u32) -> Gap {
        let brought = std::mem::take(&mut self.brought);
        if in_flight == 0 && brought.chains > 0 {
            // The disk has answered at once: what was taken since the last gap has ended, and there was no gap
            // meanwhile.
            self.served(Duration::ZERO);
        }
        if in_flight == 0 || brought.completions > 0 {
            self.waited = Duration::ZERO;
        }
        let max = self.bounds.max;
        let most = if self.service > SLOW {
            CHEAP.min(max)
        } else {
            max
        };
        let polls = now >= self.resumes && self.bounds.cpu > 0 && self.neighbours.lets_poll(now);
        let awaited = |window: &mut Window, is_due| {
            let open = if is_due && polls {
                window.open(most)
            } else {
                Duration::ZERO
            };
            let until = if open.is_zero() {
                open
            } else {
                now.saturating_add(open)
            };
            Awaited { is_due, until }
        };
        let driver_is_due = in_flight == 0 || brought.chains < brought.completions;
        let driver = awaited(&mut self.driver, driver_is_due);
        let disk = awaited(&mut self.disk, in_flight > 0);
        self.is_closed = driver.until.max(disk.until).is_zero();
        Gap {
            since: now,
            last: now,
            driver,
            disk,
            most,
            in_flight,
            is_owed: !self.is_closed,
            is_void: now < self.resumes,
        }
    }

    /// A gap has ended, if it was long enough to be called one.
    fn found(&mut self, progress: Progress) {
        let Some(gap) = self.gap.take() else { return };
        let long = gap.last.saturating_sub(gap.since);
        let is_polled = |awaited: Awaited| awaited.until > Duration::ZERO;
        if gap.driver.is_due && progress.chains > 0 {
            came(&mut self.driver, &gap, is_polled(gap.driver));
        } else if is_polled(gap.driver) && progress.completions > 0 {
            self.driver.failed();
        }
        if gap.disk.is_due {
            self.waited = self.waited.saturating_add(long);
            if progress.completions > 0 {
                came(&mut self.disk, &gap, is_polled(gap.disk));
                // As many are in flight as come in the time that one takes.
                let waited = self.waited.saturating_mul(gap.in_flight);
                self.served(waited / progress.completions.into());
            }
        }
        if gap.is_owed {
            self.spent(&gap);
        }
    }

    /// A disk took so long for a request.
    fn served(&mut self, took: Duration) {
        self.service = self.service / MEAN * (MEAN - 1) + took / MEAN;
    }

    /// It was polled through `gap`: no more before that is the share of the time that may be. In a gap longer than the
    /// window the worker did not run.
    fn spent(&mut self, gap: &Gap) {
        let (now, polled) = (gap.last, gap.last.saturating_sub(gap.since).min(gap.most));
        let percent = u32::from(self.bounds.cpu.min(100));
        if percent < 100 && now >= self.resumes {
            self.resumes = now + polled * (100 - percent) / percent.max(1);
        }
    }

    /// Others might run, by `now`. If any want the worker's processor, no more is polled in this gap.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) {
        let _ = self.timer.gave_way(now);
        if self.neighbours.gave_way(now, yielded)
            && let Some(gap) = &mut self.gap
        {
            gap.is_void = true;
            gap.last = now;
            gap.driver.until = Duration::ZERO;
            gap.disk.until = Duration::ZERO;
        }
    }

    /// A sleep has ended at `now`.
    pub fn woke(&mut self, now: Duration) {
        self.timer.woke(now);
        if let Some(gap) = &mut self.gap {
            gap.last = now;
        }
    }
}

/// What was expected has come at the end of `gap`.
fn came(window: &mut Window, gap: &Gap, is_polled: bool) {
    if is_polled {
        window.paid();
    }
    if !gap.is_void {
        window.came_after(gap.last.saturating_sub(gap.since), gap.most);
    }
}

#[cfg(test)]
mod tests;
