use super::*;
use Wait::{Block, Spin, Yield};

const RINGS: Progress = Progress {
    chains: 1,
    ..Progress::NONE
};
const COMPLETIONS: Progress = Progress {
    completions: 1,
    ..Progress::NONE
};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn policy(polling: Polling) -> Policy {
    let bounds = Bounds {
        max: Some(us(200)),
        ..Bounds::default()
    };
    Policy::new(polling, bounds, us(50))
}

/// A worker whose turns take 25 ns, and whose sleeps end 40 µs after their reason.
struct Worker {
    policy: Policy,
    now: Duration,
    /// For how long others run when it gives way.
    others: Duration,
    sleeps: u32,
    /// How many turns it looked in vain.
    looked: u32,
}

const TURN: Duration = Duration::from_nanos(25);
const LATE: Duration = us(40);

impl Worker {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: Duration::ZERO,
            others: Duration::ZERO,
            sleeps: 0,
            looked: 0,
        }
    }

    /// Works on `progress`, which comes at `due`; was it found by looking?
    fn serve(&mut self, due: Duration, progress: Progress) -> bool {
        let mut awake = true;
        while self.now < due {
            let now = self.now;
            match self.policy.after_turn(Progress::NONE, || now) {
                Block => {}
                Yield if self.others > Duration::ZERO => {
                    self.now += self.others;
                    self.policy.gave_way(now, self.now);
                    continue;
                }
                Spin | Yield => {
                    self.now += TURN;
                    self.looked += 1;
                    continue;
                }
            }
            awake = false;
            self.sleeps += 1;
            self.now = due + LATE;
            self.policy.woke(self.now, us(50));
        }
        let now = self.now;
        assert_eq!(self.policy.after_turn(progress, || now), Spin);
        self.now += TURN;
        awake
    }

    /// Serves a request every `period` for a `while_`, and says how many of them it slept before.
    fn stream(&mut self, period: Duration, while_: Duration) -> u32 {
        self.stream_of(RINGS, period, while_)
    }

    /// The same of anything.
    fn stream_of(&mut self, progress: Progress, period: Duration, while_: Duration) -> u32 {
        let (end, before) = (self.now + while_, self.sleeps);
        while self.now < end {
            let due = self.now + period;
            self.serve(due, progress);
        }
        self.sleeps - before
    }
}

#[test]
fn a_steady_stream_is_looked_for_and_a_sparse_one_is_not() {
    for (period, looks) in [
        (1, true),
        (20, true),
        (90, true),
        (1000, false),
        (10_000, false),
    ] {
        let mut worker = Worker::new(policy(Polling::Adaptive));
        worker.stream(us(period), us(100 * period));
        let (sleeps, looked) = (worker.sleeps, worker.looked);
        worker.stream(us(period), us(100 * period));
        let (sleeps, looked) = (worker.sleeps - sleeps, worker.looked - looked);
        if looks {
            assert_eq!(sleeps, 0, "every {period} µs");
        } else {
            assert!(sleeps >= 90, "every {period} µs: {sleeps}");
            assert!(TURN * looked <= us(period), "every {period} µs: {looked}");
        }
    }
}

/// A disk that ends many requests at a time: all of them would wait for the end of a sleep.
#[test]
fn what_comes_many_at_a_time_is_looked_for_longer_but_not_beyond_a_bound() {
    let eight = Progress {
        completions: 8,
        ..Progress::NONE
    };
    let few = |sleeps| sleeps < 10;
    for (max, progress, looks) in [
        (None, COMPLETIONS, false),
        (None, eight, true),
        (Some(us(200)), eight, false),
    ] {
        let bounds = Bounds { max, cpu: 100 };
        let mut worker = Worker::new(Policy::new(Polling::Adaptive, bounds, us(50)));
        worker.stream_of(progress, us(600), us(60_000));
        let sleeps = worker.stream_of(progress, us(600), us(60_000));
        assert_eq!(few(sleeps), looks, "{max:?}, {progress:?}: {sleeps} sleeps");
    }
}

#[test]
fn the_last_request_is_followed_by_one_window_and_silence() {
    let mut worker = Worker::new(policy(Polling::Adaptive));
    worker.stream(us(20), us(10_000));
    let (looked, sleeps) = (worker.looked, worker.sleeps);
    let due = worker.now + Duration::from_secs(10);
    assert!(!worker.serve(due, RINGS));
    assert!(TURN * (worker.looked - looked) <= us(200));
    assert_eq!(worker.sleeps - sleeps, 1, "nothing ticks");
}

/// Requests come by rings every `often`, completions `seldom`, or the other way round.
#[test]
fn a_sparse_source_makes_no_busy_one_sleep_and_keeps_nobody_awake() {
    for [often, seldom] in [[RINGS, COMPLETIONS], [COMPLETIONS, RINGS]] {
        let mut worker = Worker::new(policy(Polling::Adaptive));
        let rare = |n: u64| n.is_multiple_of(500);
        for n in 1..5000 {
            let due = worker.now + us(30);
            if rare(n) {
                worker.serve(worker.now + us(17), seldom);
            }
            let awake = worker.serve(due, often);
            assert!(awake || n < 10, "request {n}");
        }
        // The busy one has ended; the sparse one alone is worth no look.
        for n in 0..100 {
            let (due, looked) = (worker.now + us(15_000), worker.looked);
            assert!(!worker.serve(due, seldom));
            assert!(
                n < 30 || TURN * (worker.looked - looked) < us(2),
                "request {n}"
            );
        }
    }
}

/// A disk ends many requests after a long while, and the driver sends as many `answers` later, though it has sent none for that while.
#[test]
fn the_answers_to_completions_are_looked_for_as_far_as_they_come() {
    let many = |chains, completions| Progress {
        chains,
        completions,
        commands: false,
    };
    for (answer, looks) in [(60, true), (10_000, false)] {
        let mut worker = Worker::new(policy(Polling::Adaptive));
        let mut found = 0;
        for n in 0..200 {
            worker.serve(worker.now + us(1500), many(0, 64));
            let looked = worker.looked;
            let awake = worker.serve(worker.now + us(answer), many(64, 0));
            if n >= 100 {
                found += u32::from(awake);
                assert!(looks || TURN * (worker.looked - looked) < us(2), "{n}");
            }
        }
        assert_eq!(found, if looks { 100 } else { 0 }, "{answer} µs later");
    }
}

#[test]
fn a_worker_whose_driver_waits_for_its_processor_stops_looking() {
    // What is looked for comes only once the worker sleeps.
    let mut worker = Worker::new(policy(Polling::Adaptive));
    let mut looked = 0;
    for _ in 0..10_000 {
        worker.looked = 0;
        let slept = worker.sleeps;
        while worker.sleeps == slept {
            let now = worker.now;
            if worker.policy.after_turn(Progress::NONE, || now) == Block {
                worker.sleeps += 1;
                worker.now += us(10);
                let now = worker.now;
                worker.policy.woke(now, us(50));
            } else {
                worker.now += TURN;
                worker.looked += 1;
            }
        }
        looked += u32::from(TURN * worker.looked > us(2));
        let now = worker.now;
        worker.serve(now, RINGS);
    }
    assert!(looked < 40, "{looked} of 10000");
}

#[test]
fn where_looking_does_not_pay_one_empty_turn_is_enough() {
    let mut worker = Worker::new(policy(Polling::Adaptive));
    worker.stream(us(5000), us(1_000_000));
    let (looked, sleeps) = (worker.looked, worker.sleeps);
    worker.stream(us(5000), us(100_000));
    assert_eq!(worker.sleeps - sleeps, 20);
    assert_eq!(worker.looked, looked, "turns that were to find nothing");
    // Once it pays, it is looked for again.
    worker.stream(us(5), us(10_000));
    assert_eq!(worker.stream(us(5), us(10_000)), 0);
}

#[test]
fn a_worker_whose_processor_others_want_for_long_stops_looking() {
    let mut worker = Worker::new(policy(Polling::Adaptive));
    // In none of these gaps alone does it give way.
    let period = us(20);
    worker.stream(period, us(10_000));
    assert!(worker.serve(worker.now + period, RINGS));
    worker.others = us(3000);
    worker.stream(period, us(5000));
    let looked = worker.looked;
    for _ in 0..50 {
        assert!(!worker.serve(worker.now + period, RINGS));
    }
    assert!(TURN * (worker.looked - looked) < us(100));
    // It is alone again.
    worker.others = Duration::ZERO;
    worker.stream(period, us(200_000));
    assert!(worker.serve(worker.now + period, RINGS));
}

#[test]
fn the_budget_bounds_the_share_of_the_time_that_is_looked() {
    for percent in [0, 10, 25] {
        let bounds = Bounds {
            max: Some(us(200)),
            cpu: percent,
        };
        let mut worker = Worker::new(Policy::new(Polling::Adaptive, bounds, us(50)));
        worker.stream(us(50), us(500_000));
        let share = (TURN * worker.looked).as_secs_f64() / worker.now.as_secs_f64() * 100.0;
        assert!(share <= f64::from(percent) + 2.0, "{share} of {percent} %");
        assert!(share >= f64::from(percent) * 0.7, "{share} of {percent} %");
    }
}

#[test]
fn without_a_bound_the_longest_look_follows_from_what_a_sleep_costs() {
    for (costs, one, many) in [
        (1, 100, 400),
        (30, 120, 480),
        (50, 200, 800),
        (10_000, 400, 1600),
    ] {
        let mut policy = Policy::new(Polling::Adaptive, Bounds::default(), us(50));
        policy.woke(us(1), us(costs));
        assert_eq!(policy.worth.single, us(one));
        assert_eq!(policy.worth.most, us(many));
    }
}

#[test]
fn never_and_always_mean_it() {
    let mut never = policy(Polling::Never);
    assert_eq!(never.after_turn(RINGS, || us(0)), Spin);
    assert_eq!(never.after_turn(Progress::NONE, || us(0)), Block);
    let mut always = policy(Polling::Always);
    for _ in 0..100 {
        assert_eq!(
            always.after_turn(Progress::NONE, || panic!("the clock was asked")),
            Spin
        );
    }
}

#[test]
fn the_clock_is_not_asked_while_there_is_work() {
    let mut policy = policy(Polling::Adaptive);
    for _ in 0..100 {
        let _ = policy.after_turn(RINGS, || panic!("the clock was asked"));
        let _ = policy.after_turn(Progress::NONE, || panic!("the clock was asked"));
    }
}

/// The driver shares this processor, and answers as soon as it may run.
#[test]
fn what_comes_only_to_who_gives_way_is_hardly_looked_for() {
    for chains in [1, 16] {
        let progress = Progress {
            chains,
            ..Progress::NONE
        };
        let mut worker = Worker::new(Policy::new(Polling::Adaptive, Bounds::default(), us(50)));
        worker.stream_of(progress, us(60), us(6000));
        let (looked, mut requests) = (worker.looked, 0);
        while requests < 10_000 {
            let now = worker.now;
            match worker.policy.after_turn(Progress::NONE, || now) {
                Spin => {
                    worker.now += TURN;
                    worker.looked += 1;
                    continue;
                }
                Yield => {
                    worker.now += us(5);
                    worker.policy.gave_way(now, worker.now);
                }
                Block => {
                    worker.now += us(5);
                    worker.policy.woke(worker.now, us(50));
                }
            }
            requests += 1;
            let now = worker.now;
            worker.policy.after_turn(progress, || now);
        }
        let looked = TURN * (worker.looked - looked) / requests;
        assert!(looked < us(2), "{looked:?} a request, {chains} at a time");
    }
}

/// Turns in vain from `now` until `due`, alone on the processor; for how long, if sleep comes before that.
fn looks(policy: &mut Policy, now: &mut Duration, due: Duration) -> Option<Duration> {
    let began = *now;
    while *now < due {
        let at = *now;
        if policy.after_turn(Progress::NONE, || at) == Block {
            return Some(at.saturating_sub(began));
        }
        *now += TURN;
    }
    None
}

/// As many at a time as there are, and no sleep was ever cheap.
#[test]
fn the_most_patient_is_silent_within_ten_milliseconds_and_stays_so() {
    const DEAREST: Duration = us(1_000_000);
    let many = Progress {
        chains: u16::MAX,
        completions: u16::MAX,
        ..Progress::NONE
    };
    let mut longest = Duration::ZERO;
    for gap in [1, 100, 400, 1500, 1700, 5000] {
        let mut policy = Policy::new(Polling::Adaptive, Bounds::default(), DEAREST);
        let mut now = Duration::ZERO;
        for _ in 0..500 {
            let due = now + us(gap);
            if looks(&mut policy, &mut now, due).is_some() {
                policy.woke(due, DEAREST);
            }
            now = due;
            assert_eq!(policy.after_turn(many, || due), Spin);
        }
        let due = now + us(10_000);
        let quiet = looks(&mut policy, &mut now, due).expect("it comes to sleep");
        longest = longest.max(quiet);
        // Whatever else ends its sleep is no reason to look.
        for _ in 0..100 {
            now += us(1000);
            policy.woke(now, DEAREST);
            let due = now + us(10_000);
            let looked = looks(&mut policy, &mut now, due).expect("it sleeps again");
            assert!(looked <= TURN * CLOCK_EVERY, "{looked:?}");
        }
    }
    assert!(longest > us(1500), "that was not patient: {longest:?}");
}
