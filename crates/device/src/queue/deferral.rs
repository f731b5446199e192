//! Whether a call waits for more chains: a machine without descriptor, thread or clock of its own.
//!
//! A driver that is awake sends one request after the other, and a call for each completion interrupts it in the middle
//! of the next. A driver that sleeps wants its call at once. No sign tells the two apart, but the outcome does: the way
//! that makes more requests a second is kept, and the other one is tried again now and then, in short blocks by turns.
//!
//! ```text
//!            its time comes                   four blocks: other, best, other, best
//!   settled ────────────────▶ on trial ──────────────────────────────────────────────▶ settled
//!      ▲                          │                                       on the better of the two
//!      └──── a pause: at once ────┘
//! ```
//!
//! A call that waits is made once the driver has sent no chain for [`QUIET`], [`Window::MOST`] after it was due at the
//! latest, when much has been completed, and before the worker sleeps or gives way.

use std::time::{Duration, Instant};

use pollux_disk::wait::Window;

/// A driver that sends no chain for so long sends none: longer than one that is awake takes for its next request. With
/// 3 µs, half of the calls of a Linux guest still came in the middle of its requests
/// (`docs/notes/0001-calls-wait-while-that-pays.md`).
const QUIET: Duration = Duration::from_micros(6);

/// Requests are counted over a block of this length.
const BLOCK: Duration = Duration::from_millis(2);

/// A block of four times that length had a pause in it, and so had one with fewer requests.
const PAUSE: (Duration, u64) = (Duration::from_millis(8), 32);

/// The other way has to make so many times the requests, in both of its blocks.
const BETTER: f64 = 1.1;

/// The time to the next trial, doubled with each that changed nothing.
const TRIALS: [Duration; 2] = [Duration::from_millis(16), Duration::from_millis(256)];

/// When a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    AtOnce,
    WhenQuiet,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::AtOnce => Self::WhenQuiet,
            Self::WhenQuiet => Self::AtOnce,
        }
    }
}

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    /// When the first of the empty polls in a row was.
    quiet: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// On the best way, until then.
    Settled(Instant),
    /// In the block of that number; so many requests a second were made in those before.
    Trial(usize, [f64; 4]),
}

/// The machine, one for each queue.
#[derive(Debug)]
pub struct Deferral {
    held: Option<Held>,
    best: Way,
    stage: Stage,
    interval: Duration,
    /// When the block began, and the requests in it.
    block: Instant,
    requests: u64,
}

impl Deferral {
    pub fn new(now: Instant) -> Self {
        Self {
            held: None,
            best: Way::AtOnce,
            stage: Stage::Settled(now),
            interval: TRIALS[0],
            block: now,
            requests: 0,
        }
    }

    /// One whose calls wait, to begin with.
    #[cfg(test)]
    pub fn waiting(now: Instant) -> Self {
        Self {
            best: Way::WhenQuiet,
            ..Self::new(now)
        }
    }

    /// Does a call wait?
    #[inline]
    pub fn defers(&self) -> bool {
        self.held.is_some()
    }

    /// So many requests were shown to the driver.
    #[inline]
    pub fn shown(&mut self, requests: u16) {
        self.requests += u64::from(requests);
    }

    /// A call is due, and none waits. Is it made at once?
    pub fn is_made(&mut self, now: Instant) -> bool {
        if now.duration_since(self.block) >= BLOCK {
            self.end_block(now);
        }
        let at_once = self.way() == Way::AtOnce;
        if !at_once {
            self.held = Some(Held {
                since: now,
                quiet: None,
            });
        }
        at_once
    }

    /// A poll has found chains, or none. Is the call that waits, if there is one, made now?
    pub fn is_over(&mut self, now: Instant, chains: bool) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        let quiet = if chains {
            held.quiet = None;
            Duration::ZERO
        } else {
            now.duration_since(*held.quiet.get_or_insert(now))
        };
        quiet >= QUIET || now.duration_since(held.since) >= Window::MOST
    }

    /// No call waits any longer. Did one?
    pub fn release(&mut self) -> bool {
        self.held.take().is_some()
    }

    fn way(&self) -> Way {
        match self.stage {
            Stage::Trial(block, _) if block.is_multiple_of(2) => self.best.other(),
            Stage::Trial(..) | Stage::Settled(_) => self.best,
        }
    }

    fn end_block(&mut self, now: Instant) {
        let long = now.duration_since(self.block);
        let requests = std::mem::take(&mut self.requests);
        self.block = now;
        if long >= PAUSE.0 || requests < PAUSE.1 {
            *self = Self::new(now);
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
        let rate = requests as f64 / long.as_secs_f64();
        self.stage = match self.stage {
            Stage::Settled(until) if now < until => self.stage,
            Stage::Settled(_) => Stage::Trial(0, [0.0; 4]),
            Stage::Trial(block, mut rates) => {
                rates[block] = rate;
                if block + 1 < rates.len() {
                    Stage::Trial(block + 1, rates)
                } else {
                    self.judge(rates);
                    Stage::Settled(now + self.interval)
                }
            }
        };
    }

    fn judge(&mut self, [other, best, again, best_again]: [f64; 4]) {
        if other.min(again) > BETTER * best.max(best_again) {
            self.best = self.best.other();
            self.interval = TRIALS[0];
        } else {
            self.interval = (2 * self.interval).min(TRIALS[1]);
        }
    }
}

#[cfg(test)]
mod tests;
