//! Whether a call waits for more chains: a machine without descriptor, thread or clock of its own.
//!
//! A driver that is awake sends one request after the other, and a call for each completion interrupts it in the middle
//! of the next. A driver that sleeps wants its call at once. No sign tells the two apart, but the outcome does. There
//! are three ways: a call is made at once, or once the driver has sent no chain for a shorter or a longer time
//! ([`QUIET`]). The one that makes most requests a second is kept, and one of the others, by turns, is tried now and
//! then, in short blocks.
//!
//! ```text
//!            its time comes                 four blocks: other, best, other, best
//!   settled ────────────────▶ on trial ────────────────────────────────────────────▶ settled
//!    ▲   │                        │                                     on the better of the two
//!    │   └────────┬───────────────┘
//!  a block     a pause
//!  of load        ▼
//!    └───── paused: at once
//! ```
//!
//! What is known outlasts a pause: a load that comes in bursts is settled after the first block of each.
//!
//! A call that waits is made [`Window::MOST`] after it was due at the latest, when much has been completed, and before
//! the worker sleeps or gives way.

use std::time::{Duration, Instant};

use pollux_disk::wait::Window;

/// A driver that sends no chain for so long sends none, in each of the ways; by the first one calls are made at once.
/// It has to be longer than a driver that is awake takes for its next request, and no longer than that, which is for
/// the outcome to tell (`docs/notes/0001-calls-wait-while-that-pays.md`).
const QUIET: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_micros(6),
    Duration::from_micros(12),
];

/// Requests are counted over a block of this length.
const BLOCK: Duration = Duration::from_millis(2);

/// A block of four times that length had a pause in it, and so had one with fewer requests.
const PAUSE: (Duration, u64) = (Duration::from_millis(8), 32);

/// The other way has to make so many times the requests, in both of its blocks.
const BETTER: f64 = 1.1;

/// The time to the next trial, doubled with each that changed nothing.
const TRIALS: [Duration; 2] = [Duration::from_millis(16), Duration::from_millis(256)];

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    /// When the first of the empty polls in a row was.
    quiet: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// There is no load: calls are made at once.
    Paused,
    /// On the best way.
    Settled,
    /// In the block of that number; so many requests a second were made in those before.
    Trial(usize, [f64; 4]),
}

/// The machine, one for each queue.
#[derive(Debug)]
pub struct Deferral {
    held: Option<Held>,
    best: usize,
    /// What is tried beside the best, or will be.
    other: usize,
    stage: Stage,
    /// When the next trial begins, and how long after the last one that is.
    next: Instant,
    interval: Duration,
    /// When the block began, and the requests in it.
    block: Instant,
    requests: u64,
}

impl Deferral {
    pub fn new(now: Instant) -> Self {
        Self {
            held: None,
            best: 0,
            other: 1,
            stage: Stage::Paused,
            next: now,
            interval: TRIALS[0],
            block: now,
            requests: 0,
        }
    }

    /// One whose calls wait for six microseconds of quiet, to begin with.
    #[cfg(test)]
    pub fn waiting(now: Instant) -> Self {
        Self {
            best: 1,
            other: 2,
            stage: Stage::Settled,
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
        let at_once = self.quiet().is_zero();
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
        let enough = self.quiet();
        let Some(held) = &mut self.held else {
            return false;
        };
        let quiet = if chains {
            held.quiet = None;
            Duration::ZERO
        } else {
            now.duration_since(*held.quiet.get_or_insert(now))
        };
        quiet >= enough || now.duration_since(held.since) >= Window::MOST
    }

    /// No call waits any longer. Did one?
    pub fn release(&mut self) -> bool {
        self.held.take().is_some()
    }

    fn quiet(&self) -> Duration {
        match self.stage {
            Stage::Trial(block, _) if block.is_multiple_of(2) => QUIET[self.other],
            Stage::Trial(..) | Stage::Settled => QUIET[self.best],
            Stage::Paused => Duration::ZERO,
        }
    }

    fn end_block(&mut self, now: Instant) {
        let long = now.duration_since(self.block);
        let requests = std::mem::take(&mut self.requests);
        self.block = now;
        if long >= PAUSE.0 || requests < PAUSE.1 {
            self.stage = Stage::Paused;
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
        let rate = requests as f64 / long.as_secs_f64();
        self.stage = match self.stage {
            Stage::Settled | Stage::Paused if now < self.next => Stage::Settled,
            Stage::Settled | Stage::Paused => Stage::Trial(0, [0.0; 4]),
            Stage::Trial(block, mut rates) => {
                rates[block] = rate;
                if block + 1 < rates.len() {
                    Stage::Trial(block + 1, rates)
                } else {
                    self.judge(rates);
                    self.next = now + self.interval;
                    Stage::Settled
                }
            }
        };
    }

    fn judge(&mut self, [other, best, again, best_again]: [f64; 4]) {
        if other.min(again) > BETTER * best.max(best_again) {
            self.best = self.other;
            self.interval = TRIALS[0];
        } else {
            self.interval = (2 * self.interval).min(TRIALS[1]);
        }
        let next = (self.other + 1) % QUIET.len();
        self.other = if next == self.best {
            (next + 1) % QUIET.len()
        } else {
            next
        };
    }
}

#[cfg(test)]
mod tests;
