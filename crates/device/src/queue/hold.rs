//! Whether a call waits for more chains: a machine without descriptor, thread or clock of its own.
//!
//! A driver that is awake sends one request after the other, and a call for each completion interrupts it in the middle of
//! the next. A driver that sleeps wants its call at once. No sign tells the two apart, but the outcome does: the way that
//! makes more requests a second is kept, and the other one is tried again now and then, in short blocks by turns.
//!
//! ```text
//!            its time comes                   four blocks: other, best, other, best
//!   settled ────────────────▶ on trial ──────────────────────────────────────────────▶ settled
//!      ▲                          │                                       on the better of the two
//!      └──── a pause: at once ────┘
//! ```
//!
//! A call that waits is made once the driver has sent no chain for [`QUIET`], [`MOST`] after it was due at the latest, when
//! much has been completed, and before the worker sleeps or gives way.

use std::time::{Duration, Instant};

/// A driver that sends no chain for so long sends none: longer than one that is awake takes for its next request.
const QUIET: Duration = Duration::from_micros(3);

/// The longest wait of a call.
const MOST: Duration = Duration::from_micros(50);

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
pub struct Hold {
    held: Option<Held>,
    best: Way,
    stage: Stage,
    interval: Duration,
    /// When the block began, and the requests in it.
    block: Instant,
    requests: u64,
}

impl Hold {
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
    pub fn holds(&self) -> bool {
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
            let quiet = None;
            self.held = Some(Held { since: now, quiet });
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
        quiet >= QUIET || now.duration_since(held.since) >= MOST
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
mod tests {
    use super::*;

    /// A queue whose driver gets a call every `each` µs with so many requests: by calls at once, or held.
    struct Load {
        hold: Hold,
        now: Instant,
    }

    impl Load {
        fn new() -> Self {
            let now = Instant::now();
            let hold = Hold::new(now);
            Self { hold, now }
        }

        /// How many of the last calls of so many ms were held?
        fn run(&mut self, ms: u64, each: u64, at_once: u16, held: u16) -> (u32, u32) {
            let end = self.now + Duration::from_millis(ms);
            let mut calls = [0, 0];
            while self.now < end {
                self.now += Duration::from_micros(each);
                let made = self.hold.is_made(self.now);
                self.hold.shown(if made { at_once } else { held });
                self.hold.release();
                calls[usize::from(made)] += 1;
            }
            (calls[0], calls[1])
        }
    }

    #[test]
    fn a_driver_that_makes_more_when_left_alone_is_left_alone() {
        let mut load = Load::new();
        load.run(30, 20, 1, 3);
        let (held, at_once) = load.run(1000, 20, 1, 3);
        assert!(held > 20 * at_once, "{held} held, {at_once} at once");
    }

    #[test]
    fn a_driver_that_makes_less_is_called_at_once_but_for_rare_trials() {
        let mut load = Load::new();
        load.run(1000, 20, 3, 1);
        let (held, at_once) = load.run(10_000, 20, 3, 1);
        assert!(at_once > 40 * held, "{held} held, {at_once} at once");
        assert!(held > 0, "it is tried again");
    }

    #[test]
    fn what_makes_no_difference_is_not_held() {
        let mut load = Load::new();
        load.run(1000, 20, 2, 2);
        let (held, at_once) = load.run(10_000, 20, 2, 2);
        assert!(at_once > 40 * held, "{held} held, {at_once} at once");
    }

    #[test]
    fn a_change_of_the_load_is_noticed() {
        let mut load = Load::new();
        load.run(1000, 20, 1, 3);
        load.run(400, 20, 3, 1);
        let (held, at_once) = load.run(10_000, 20, 3, 1);
        assert!(at_once > 20 * held, "{held} held, {at_once} at once");
    }

    #[test]
    fn after_a_pause_calls_are_made_at_once() {
        let mut load = Load::new();
        load.run(1000, 20, 1, 3);
        load.now += Duration::from_millis(50);
        assert!(load.hold.is_made(load.now));
        assert_eq!(load.run(100, 1000, 1, 3).0, 0, "few requests are no load");
    }

    #[test]
    fn a_call_waits_until_it_is_quiet_and_no_longer_than_the_most() {
        let start = Instant::now();
        let mut hold = Hold::waiting(start);
        let us = |us| start + Duration::from_micros(us);
        let times = [us(10), us(11), us(13), us(14), us(16), us(17), us(61)];
        assert!(!hold.is_made(times[0]));
        assert!(!hold.is_over(times[1], false));
        assert!(!hold.is_over(times[2], true));
        assert!(!hold.is_over(times[3], false));
        assert!(!hold.is_over(times[4], false));
        assert!(hold.is_over(times[5], false), "three microseconds of quiet");
        assert!(hold.is_over(times[6], true), "fifty since it was due");
        assert!(hold.release() && !hold.release());
    }
}
