//! Which way of waiting costs a thread less of its own processor time for each request: to sleep at once, or
//! to look before it. A machine without queue or clock of its own.
//!
//! Neither can be told from outside: what a sleep costs is the machine's, how many requests it brings the
//! load's, and a look may find a device awake that would have to be woken by who sleeps. So both are tried,
//! and the thread's time is measured over blocks of waits. Who sleeps tries to look now and then, and less
//! often each time that was in vain; that ends as soon as it has cost as much more as a few sleeps take. Who
//! looks goes on while that is cheaper than the sleeps last measured, and measures them anew once a second
//! of its time: the load may have changed.
//!
//! ```text
//!          ┌──── a block of sleeps ────┐
//!          ▼                           │
//!     ┌────────┐ ──── its turn ────▶ Tries ──── a block, cheaper ────▶ ┌───────┐ ──┐ a block,
//!     │ Sleeps │ ◀─ dearer ─────────┘                                  │ Looks │   │ no dearer
//!     └────────┘ ◀──── a block, dearer; or a second is over ─────────── └───────┘ ◀─┘
//! ```

use std::time::Duration;

use pollux_disk::wait::Doubt;

/// The machine.
#[derive(Debug)]
pub struct Thrift {
    state: State,
    block: Block,
    tries: Doubt,
}

/// What it does, and what sleeps cost as far as it is known.
#[derive(Clone, Copy, Debug)]
enum State {
    Sleeps(Option<Cost>),
    Tries(Cost),
    /// For so many seconds of the thread's time yet.
    Looks(Cost, f64),
}

/// Waits so far, and the requests that they brought.
#[derive(Debug, Default)]
struct Block {
    /// The thread's time at the beginning; unknown of the first.
    since: Option<Duration>,
    waits: u32,
    requests: u32,
}

/// What sleeping costs of the thread's time, in seconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    request: f64,
    wait: f64,
}

/// Waits of a block.
const BLOCK: u32 = 64;
/// So many sleeps may be lost by a try.
const STAKE: f64 = 8.0;
/// Looks that are dearer than sleeps by less than this go on.
const HARDLY: f64 = 1.125;
/// The most blocks of sleeps between two tries.
const MOST_BLOCKS: u32 = 256;
/// Sleeps are measured anew after so many seconds of the thread's time.
const AGES: f64 = 1.0;

impl Thrift {
    /// One that sleeps until it knows better.
    pub const fn new() -> Self {
        Self {
            state: State::Sleeps(None),
            block: Block {
                since: None,
                waits: 0,
                requests: 0,
            },
            tries: Doubt::new(0, MOST_BLOCKS),
        }
    }

    /// Is the next wait to look before it sleeps?
    #[inline]
    pub fn looks(&self) -> bool {
        !matches!(self.state, State::Sleeps(_))
    }

    /// A wait has brought so many requests. `time` tells what the thread has used so far. Are looks tried
    /// from now on?
    #[inline]
    pub fn waited(&mut self, requests: usize, time: impl FnOnce() -> Duration) -> bool {
        self.block.waits += 1;
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.block.requests = self.block.requests.saturating_add(requests);
        let ends = self.block.waits == BLOCK;
        (ends || matches!(self.state, State::Tries(_))) && self.check(ends, time())
    }

    /// A block `ends`, or a try goes on.
    #[cold]
    fn check(&mut self, ends: bool, now: Duration) -> bool {
        let Some(since) = self.block.since else {
            self.begin(self.state, now);
            return false;
        };
        let spent = now.saturating_sub(since).as_secs_f64();
        let sleeping = |asleep: Cost| asleep.request * f64::from(self.block.requests);
        match self.state {
            State::Sleeps(asleep) => {
                let last = Cost::each(spent, &self.block);
                let asleep = asleep.map_or(last, |mean| mean.and(last));
                let tries = self.tries.tries();
                let sleeps = State::Sleeps(Some(asleep));
                self.begin(if tries { State::Tries(asleep) } else { sleeps }, now);
                return tries;
            }
            State::Tries(asleep) => {
                let most = if ends { 0.0 } else { asleep.wait * STAKE };
                if spent > sleeping(asleep) + most {
                    self.tries.failed();
                    self.begin(State::Sleeps(Some(asleep)), now);
                } else if ends {
                    self.tries.paid();
                    self.begin(State::Looks(asleep, AGES), now);
                }
            }
            // Who looks is answered sooner: what is hardly dearer is not worth a change.
            State::Looks(asleep, left) if left > spent && spent <= sleeping(asleep) * HARDLY => {
                self.begin(State::Looks(asleep, left - spent), now);
            }
            State::Looks(..) => self.begin(State::Sleeps(None), now),
        }
        false
    }

    const fn begin(&mut self, state: State, now: Duration) {
        self.state = state;
        self.block = Block {
            since: Some(now),
            waits: 0,
            requests: 0,
        };
    }
}

impl Cost {
    fn each(spent: f64, block: &Block) -> Self {
        Self {
            request: spent / f64::from(block.requests.max(1)),
            wait: spent / f64::from(block.waits),
        }
    }

    /// A mean of the last few.
    fn and(self, last: Self) -> Self {
        let mean = |mean: f64, last: f64| (last - mean).mul_add(0.25, mean);
        Self {
            request: mean(self.request, last.request),
            wait: mean(self.wait, last.wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that waits, and what that costs.
    struct Thread {
        thrift: Thrift,
        time: Duration,
        /// Of a wait that sleeps: requests, and µs of the thread's time.
        sleep: (usize, u64),
        /// Of one that looks.
        look: (usize, u64),
    }

    impl Thread {
        fn new(sleep: (usize, u64), look: (usize, u64)) -> Self {
            let (thrift, time) = (Thrift::new(), Duration::ZERO);
            Self {
                thrift,
                time,
                sleep,
                look,
            }
        }

        /// How many of so many waits look.
        fn looks(&mut self, waits: u32) -> u32 {
            let mut looks = 0;
            for _ in 0..waits {
                let (requests, cost) = if self.thrift.looks() {
                    looks += 1;
                    self.look
                } else {
                    self.sleep
                };
                self.time += Duration::from_micros(cost);
                self.thrift.waited(requests, || self.time);
            }
            looks
        }
    }

    #[test]
    fn what_costs_less_for_each_request_is_done() {
        for (sleep, look, looks) in [
            ((1, 10), (1, 2), true),
            ((16, 10), (1, 2), false),
            ((16, 10), (4, 2), true),
            ((1, 10), (1, 11), false),
            ((1, 10), (1, 45), false),
            ((1, 10), (0, 45), false),
        ] {
            let mut thread = Thread::new(sleep, look);
            thread.looks(4096);
            let found = thread.looks(4096);
            let right = if looks { found == 4096 } else { found < 400 };
            assert!(right, "{sleep:?} {look:?}: {found} of 4096 waits look");
        }
    }

    #[test]
    fn tries_that_fail_cost_little() {
        let mut thread = Thread::new((1, 10), (1, 45));
        let waits = 100_000;
        thread.looks(waits);
        let (time, asleep) = (thread.time, Duration::from_micros(10) * waits);
        assert!(time < asleep * 101 / 100, "{time:?} instead of {asleep:?}");
    }

    #[test]
    fn what_has_changed_is_noticed() {
        let mut thread = Thread::new((1, 10), (1, 2));
        thread.looks(4096);
        // Looking is as dear as ever; but now a sleep would bring a batch.
        (thread.sleep, thread.look) = ((16, 10), (1, 3));
        thread.looks(1_000_000);
        let looks = thread.looks(4096);
        assert!(looks < 400, "{looks} of 4096 waits look");
        // The device does not answer at once any more.
        thread.look = (1, 2);
        thread.sleep = (1, 10);
        thread.looks(64 * 1000);
        assert_eq!(thread.looks(4096), 4096);
        thread.look = (1, 60);
        assert!(thread.looks(4096) < 400);
    }
}
