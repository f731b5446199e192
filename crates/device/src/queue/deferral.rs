//! Whether a call waits for more chains: a machine without descriptor, thread or clock of its own.
//!
//! A driver that is awake sends one request after the other, and a call for each completion interrupts it in the middle
//! of the next. A driver that sleeps wants its call at once. No sign tells the two apart, but the outcome does. There
//! are two ways: calls are made at once, or they wait. Now and then both are tried in short blocks. Waiting has to make
//! notably more requests a second ([`GAIN`]).
//!
//! ```text
//!            its time comes               four blocks: other, present, present, other
//!   settled ────────────────▶ on trial ───────────────────────────────────────────────▶ settled
//!                                                                              on the better of the two
//! ```
//!
//! A pause interrupts either, and calls are made at once until there has been a block of load again. What is known
//! outlasts it, so a load that comes in bursts goes on where the last burst ended; but not many bursts that are too
//! short for a block.
//!
//! A call that waits is made once nothing has come for a while ([`QUIET`]). It is made sooner if as many requests have
//! ended as usual, which is the most of any wait in the last period of eight: the driver has probably no more. It is made
//! [`LONGEST_WAIT`] after it was due at the latest, when much has been completed, and before the worker sleeps or gives
//! way.

use std::time::{Duration, Instant};

use pollux_disk::wait::Window;

/// How long nothing must come before a call that waits is made: longer than a driver that is awake takes for its next
/// request, but not by much (`docs/notes/0013-how-long-a-call-waits.md`).
const QUIET: Duration = Duration::from_micros(12);

/// A call waits for so long at most: as long as ten requests of a guest that sends without a pause.
const LONGEST_WAIT: Duration = Window::MOST.saturating_mul(2);

/// Requests are counted over a block of this length.
const BLOCK: Duration = Duration::from_millis(2);

/// A block that took the first had a pause in it. So had one with fewer requests than the second, if calls were made at
/// once because that is the way, or after a pause.
const PAUSE: (Duration, u64) = (Duration::from_millis(8), 32);

/// Waiting has to make so many times the requests of calls at once.
const GAIN: f64 = 1.1;

/// So many blocks to the next trial, twice as many after each that changed nothing, and no more than the second. After
/// the first number of blocks in a row that a pause has cut, nothing is known any more. And the last of as many waits
/// is not ended by the number of requests: the driver may have more by now.
const TRIALS: [u32; 2] = [8, 128];

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    /// When the first of the empty polls in a row was.
    quiet: Option<Instant>,
}

/// How many requests a call is for.
#[derive(Clone, Copy, Debug)]
struct Gathered {
    /// Since the last call, or since the driver last took some without a call.
    count: u64,
    /// The most in any wait of the last period. At first that is not known, and no number is as large.
    usual: u64,
    /// The most in any wait of this one.
    most: u64,
    /// So many more waits are in it.
    left: u32,
}

impl Gathered {
    const NOTHING: Self = Self {
        count: 0,
        usual: u64::MAX,
        most: 0,
        left: TRIALS[0],
    };

    /// Is that all that the driver has, as far as is known?
    fn is_usual(&self) -> bool {
        self.left > 1 && self.count >= self.usual
    }

    /// A wait has ended.
    fn ended(&mut self) {
        self.most = self.most.max(self.count);
        self.left -= 1;
        if self.left == 0 {
            (self.usual, self.most, self.left) = (self.most, 0, TRIALS[0]);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// In the present way, for so many more blocks.
    Settled(u32),
    /// In the block of that number; so many requests a second were made in those before.
    Trial(usize, [f64; 4]),
}

/// The machine, one for each queue.
#[derive(Debug)]
pub struct Deferral {
    held: Option<Held>,
    gathered: Gathered,
    /// The present way: do calls wait?
    waits: bool,
    stage: Stage,
    /// There is no load, or was none until this block.
    paused: bool,
    /// So many blocks in a row were cut by a pause.
    cuts: u32,
    /// So many blocks are between two trials.
    interval: u32,
    /// When the block began, and the requests in it.
    block: Instant,
    requests: u64,
}

impl Deferral {
    pub fn new(now: Instant) -> Self {
        Self {
            held: None,
            gathered: Gathered::NOTHING,
            waits: false,
            stage: Stage::Settled(1),
            paused: true,
            cuts: 0,
            interval: TRIALS[0],
            block: now,
            requests: 0,
        }
    }

    /// One whose calls wait, without trials for an hour.
    #[cfg(test)]
    pub fn waiting() -> Self {
        Self {
            waits: true,
            paused: false,
            ..Self::new(Instant::now() + Duration::from_secs(3600))
        }
    }

    /// The call that waits waits for an hour, as far as time tells.
    #[cfg(test)]
    pub fn wait_on(&mut self) {
        let since = Instant::now() + Duration::from_secs(3600);
        self.held = Some(Held { since, quiet: None });
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
        self.gathered.count += u64::from(requests);
    }

    /// A call is due, and none waits. Is it made at once?
    pub fn is_made(&mut self, now: Instant) -> bool {
        if now.duration_since(self.block) >= BLOCK {
            self.end_block(now);
        }
        let waits = match self.stage {
            _ if self.paused => false,
            Stage::Trial(0 | 3, _) => !self.waits,
            Stage::Trial(..) | Stage::Settled(_) => self.waits,
        };
        if waits && !self.gathered.is_usual() {
            self.held = Some(Held {
                since: now,
                quiet: None,
            });
            return false;
        }
        if waits {
            self.gathered.ended();
        }
        true
    }

    /// Chains or completions have come, or none. Is the call that waits, if there is one, made now?
    pub fn is_over(&mut self, now: Instant, came: bool) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        let quiet = if came {
            held.quiet = None;
            Duration::ZERO
        } else {
            now.duration_since(*held.quiet.get_or_insert(now))
        };
        let long = now.duration_since(held.since);
        quiet >= QUIET || long >= LONGEST_WAIT || self.gathered.is_usual()
    }

    /// No call waits any longer. Did one?
    pub fn release(&mut self) -> bool {
        let waited = self.held.take().is_some();
        if waited {
            self.gathered.ended();
        }
        waited
    }

    /// What was shown is not waited for: the driver is called, or wants no call.
    #[inline]
    pub fn restart(&mut self) {
        self.gathered.count = 0;
    }

    fn end_block(&mut self, now: Instant) {
        let long = now.duration_since(self.block);
        let requests = std::mem::take(&mut self.requests);
        self.block = now;
        let by_way = !self.waits && matches!(self.stage, Stage::Settled(_));
        let is_few = requests < PAUSE.1 && (self.paused || by_way);
        let was_paused = std::mem::replace(&mut self.paused, long >= PAUSE.0 || is_few);
        if self.paused && !was_paused {
            self.cuts += 1;
            if self.cuts >= TRIALS[0] {
                *self = Self::new(now);
            }
        }
        if was_paused || self.paused {
            return;
        }
        self.cuts = 0;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand requests")]
        let rate = requests as f64 / long.as_secs_f64();
        self.stage = match self.stage {
            Stage::Settled(..=1) => Stage::Trial(0, [0.0; 4]),
            Stage::Settled(blocks) => Stage::Settled(blocks - 1),
            Stage::Trial(block, mut rates) => {
                rates[block] = rate;
                if block + 1 < rates.len() {
                    Stage::Trial(block + 1, rates)
                } else {
                    self.judge(rates);
                    Stage::Settled(self.interval)
                }
            }
        };
    }

    fn judge(&mut self, [other, present, again, other_again]: [f64; 4]) {
        let (present, other) = (present + again, other + other_again);
        let (waiting, at_once) = if self.waits {
            (present, other)
        } else {
            (other, present)
        };
        let waits = waiting > GAIN * at_once;
        self.interval = if waits == self.waits {
            (2 * self.interval).min(TRIALS[1])
        } else {
            TRIALS[0]
        };
        self.waits = waits;
    }
}

#[cfg(test)]
mod tests;
