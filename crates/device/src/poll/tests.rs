#![allow(clippy::float_cmp, reason = "of none none slept")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "the clock of these tests only goes on"
)]

mod bounds;
mod load;
mod neighbours;

use pollux_threads::Usage;

use super::*;
use Wait::{Block, Spin, Yield};

const CHAIN: Progress = Progress {
    chains: 1,
    ..Progress::NONE
};
const COMPLETION: Progress = Progress {
    completions: 1,
    ..Progress::NONE
};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A worker whose turns take 25 ns, and whose sleeps end 40 µs after their reason.
struct Worker {
    policy: Policy,
    now: Duration,
    /// For how long others run when it gives way.
    others: Duration,
    /// For so long it runs after that before they run again: it is owed time, as it has slept.
    owed: Duration,
    /// When it will have run for that long.
    due: Duration,
    /// For how long it ran, and how often it was preempted; and that by the last yield.
    usage: Usage,
    last: Usage,
    /// Others run as soon as they are called.
    is_preempted: bool,
    in_flight: u32,
    sleeps: u32,
    /// How many turns were empty.
    polls: u32,
}

const TURN: Duration = Duration::from_nanos(25);
const LATE: Duration = us(40);

impl Worker {
    fn new(bounds: Bounds) -> Self {
        Self {
            policy: Policy::new(Polling::Adaptive, bounds),
            now: Duration::ZERO,
            others: Duration::ZERO,
            owed: Duration::ZERO,
            due: Duration::ZERO,
            usage: Usage::NONE,
            last: Usage::NONE,
            is_preempted: false,
            in_flight: 0,
            sleeps: 0,
            polls: 0,
        }
    }

    fn after_turn(&mut self, progress: Progress) -> Wait {
        self.policy
            .after_turn(progress, || self.now, || self.in_flight)
    }

    /// Works on `progress`, which comes at `due`; was it found by a poll?
    fn serve(&mut self, due: Duration, progress: Progress) -> bool {
        let mut awake = true;
        while self.now < due {
            match self.after_turn(Progress::NONE) {
                Block => {
                    awake = false;
                    self.sleeps += 1;
                    self.now = due + LATE;
                    self.policy.woke(self.now);
                }
                Yield => {
                    let (started, before) = (self.now, self.usage.preemptions);
                    if self.others > Duration::ZERO && self.usage.ran >= self.due {
                        self.is_preempted_for(self.others);
                        self.due = self.usage.ran + self.owed;
                    } else {
                        self.runs(TURN);
                    }
                    let yielded = Yielded {
                        took: self.now - started,
                        ran: self.usage.ran - self.last.ran,
                        before: before - self.last.preemptions,
                        meanwhile: self.usage.preemptions - before,
                    };
                    self.last = self.usage;
                    self.policy.gave_way(self.now, yielded);
                }
                Spin => {
                    self.runs(TURN);
                    self.polls += 1;
                }
            }
        }
        self.usage.preemptions += u64::from(self.is_preempted);
        assert_eq!(self.after_turn(progress), Spin);
        self.runs(TURN);
        awake
    }

    fn runs(&mut self, time: Duration) {
        self.now += time;
        self.usage.ran += time;
    }

    fn is_preempted_for(&mut self, time: Duration) {
        self.now += time;
        self.usage.preemptions += 1;
    }

    /// Serves requests that the disk answers after `service`, each sent `pause` after the completion of the last: how
    /// many of its two waits for each were slept through, and how much was polled, each per request?
    fn load(&mut self, requests: u32, pause: Duration, service: Duration) -> (f64, Duration) {
        let before = (self.sleeps, self.polls);
        for _ in 0..requests {
            self.in_flight = 0;
            self.serve(self.now + pause, CHAIN);
            if service > Duration::ZERO {
                self.in_flight = 1;
                self.serve(self.now + service, COMPLETION);
            }
        }
        let sleeps = f64::from(self.sleeps - before.0) / f64::from(requests);
        (sleeps, TURN * (self.polls - before.1) / requests)
    }
}

#[test]
fn never_and_always_mean_it() {
    let ask = |policy: &mut Policy, progress| {
        policy.after_turn(progress, || panic!("the clock was asked"), || 0)
    };
    let mut never = Policy::new(Polling::Never, Bounds::default());
    assert_eq!(ask(&mut never, CHAIN), Spin);
    assert_eq!(ask(&mut never, Progress::NONE), Block);
    let mut always = Policy::new(Polling::Always, Bounds::default());
    for turn in 0..100 {
        let wait = always.after_turn(Progress::NONE, || us(1000 * turn), || 0);
        assert_eq!(wait, Spin);
    }
}

#[test]
fn the_clock_is_not_asked_while_there_is_work() {
    let mut policy = Policy::new(Polling::Adaptive, Bounds::default());
    for progress in [CHAIN, Progress::NONE].into_iter().cycle().take(200) {
        let _ = policy.after_turn(progress, || panic!("the clock was asked"), || 0);
    }
}

#[test]
fn polls_that_find_nothing_are_timed_whichever_policy_polls() {
    for polling in [Polling::Adaptive, Polling::Always] {
        let mut policy = Policy::new(polling, Bounds::default());
        let mut now = Duration::ZERO;
        let mut polls = |many: u32, policy: &mut Policy| {
            for _ in 0..many {
                now += TURN;
                let _ = policy.after_turn(Progress::NONE, || now, || 0);
            }
            let _ = policy.after_turn(CHAIN, || now, || 0);
            policy.take_polled_ns()
        };
        assert_eq!(
            polls(7, &mut policy),
            0,
            "nothing has told how long one takes"
        );
        // Of the first eight, the clock tells nothing.
        assert_eq!(polls(100, &mut policy) / 25, 88 + 4 * 24 / 25);
        for _ in 0..100 {
            let _ = polls(100, &mut policy);
        }
        assert_eq!(polls(5, &mut policy), 125, "as long as others");
    }
    let mut never = Policy::new(Polling::Never, Bounds::default());
    let _ = never.after_turn(Progress::NONE, || us(1), || 0);
    assert_eq!(never.take_polled_ns(), 0);
}

#[test]
fn a_worker_that_gives_way_polls_and_one_that_sleeps_does_not() {
    let mut policy = Policy::new(Polling::Adaptive, Bounds::default());
    let mut now = Duration::ZERO;
    for _ in 0..8 {
        now += TURN;
        let _ = policy.after_turn(Progress::NONE, || now, || 0);
    }
    now += us(500);
    policy.woke(now);
    assert_eq!(policy.take_polled_ns(), 0);
    now += us(300);
    let yielded = Yielded {
        took: us(300),
        ran: Duration::ZERO,
        before: 0,
        meanwhile: 0,
    };
    policy.gave_way(now, yielded);
    assert_eq!(policy.take_polled_ns(), 300_000);
}
