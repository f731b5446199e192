#![allow(clippy::float_cmp, reason = "of none none slept")]
#![allow(
    clippy::unchecked_time_subtraction,
    reason = "the clock of these tests only goes on"
)]

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
    /// From so many yields it comes back at once: it was owed time when it slept.
    owed: u32,
    yields: u32,
    usage: Usage,
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
            owed: 0,
            yields: 0,
            usage: Usage::default(),
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
                    self.yields = 0;
                    self.now = due + LATE;
                    self.policy.woke(self.now);
                }
                Yield => {
                    let (before, started) = (self.usage, self.now);
                    self.yields += 1;
                    if self.others > Duration::ZERO && self.yields > self.owed {
                        self.is_preempted_for(self.others);
                    } else {
                        self.runs(TURN);
                    }
                    let yielded = Yielded {
                        took: self.now - started,
                        before,
                        after: self.usage,
                    };
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

/// What the drivers send in time is polled for, and what comes late costs next to nothing.
#[test]
fn polls_follow_the_load() {
    // Pause of the driver and service of the disk, in µs; sleeps a request, and the most of the polls, in µs.
    for (pause, service, sleeps, polls) in [
        (1, 0, 0.0, 1),
        (20, 0, 0.0, 20),
        (40, 0, 0.0, 40),
        (90, 0, 1.0, 1),
        (1000, 0, 1.0, 1),
        (10_000, 0, 1.0, 1),
        (5, 20, 0.0, 25),
        // A gap that is longer than a window is slept through.
        (5, 100, 1.0, 7),
        (20, 100, 1.0, 23),
        // On a slow disk so is the driver's pause, as a wake-up is little beside it.
        (20, 300, 2.0, 3),
        (20, 2000, 2.0, 6),
    ] {
        let mut worker = Worker::new(Bounds::default());
        worker.load(500, us(pause), us(service));
        let (slept, polled) = worker.load(2000, us(pause), us(service));
        let case = format!("{pause} µs after each, disk {service} µs: {slept} sleeps, {polled:?}");
        assert!((slept - sleeps).abs() < 0.06, "{case}");
        assert!(polled <= us(polls), "{case}");
    }
}

#[test]
fn a_load_that_has_become_worth_it_is_polled_for_within_a_fiftieth_of_a_second() {
    for (pause, service) in [(5, 0), (20, 0), (5, 10)] {
        let mut worker = Worker::new(Bounds::default());
        worker.load(1000, us(10_000), us(0));
        worker.load(1000, us(10), us(300));
        let began = worker.now;
        while worker.load(100, us(pause), us(service)).0 > 0.0 {
            assert!(worker.now - began < us(20_000), "{pause} {service}");
        }
    }
}

#[test]
fn the_last_request_is_followed_by_one_window_and_silence() {
    let mut worker = Worker::new(Bounds::default());
    worker.load(1000, us(20), us(0));
    let (polls, sleeps) = (worker.polls, worker.sleeps);
    let due = worker.now + Duration::from_secs(10);
    assert!(!worker.serve(due, CHAIN));
    assert!(TURN * (worker.polls - polls) <= Window::MOST + us(1));
    assert_eq!(worker.sleeps - sleeps, 1, "nothing ticks");
}

#[test]
fn many_in_flight_on_a_slow_disk_are_slept_through() {
    // Completions every 25 µs, and the driver answers each after 2.
    for in_flight in [16, 64] {
        let mut worker = Worker::new(Bounds::default());
        worker.in_flight = in_flight;
        let mut polls = 0;
        for n in 0..2000 {
            if n == 1000 {
                polls = worker.polls;
            }
            worker.serve(worker.now + us(23), COMPLETION);
            worker.serve(worker.now + us(2), CHAIN);
        }
        let polled = TURN * (worker.polls - polls) / 1000;
        assert!(
            polled < us(4),
            "{in_flight} in flight: {polled:?} a request"
        );
    }
}

#[test]
fn chains_between_completions_make_a_slow_disk_no_faster() {
    // Requests in flight, what the disk takes for one, and when the driver answers a completion, in µs.
    for (in_flight, service, answer) in [(8, 250, 2), (8, 250, 15), (16, 400, 23), (32, 1000, 29)] {
        let mut worker = Worker::new(Bounds::default());
        worker.in_flight = in_flight;
        let every = us(service) / in_flight;
        let mut polls = 0;
        for n in 0..4000 {
            if n == 2000 {
                polls = worker.polls;
            }
            let due = worker.now + every;
            worker.serve(worker.now + us(answer), CHAIN);
            worker.serve(due, COMPLETION);
        }
        let polled = TURN * (worker.polls - polls) / 2000;
        let case = format!("{in_flight} in flight, {service} µs: {polled:?} of {every:?}");
        assert!(polled < every / 4, "{case}");
    }
}

#[test]
fn a_sparse_driver_makes_no_busy_disk_sleep() {
    let mut worker = Worker::new(Bounds::default());
    worker.in_flight = 4;
    let mut slept = 0;
    for n in 0..5000 {
        slept += u32::from(!worker.serve(worker.now + us(8), COMPLETION));
        if n % 500 == 0 {
            worker.serve(worker.now + us(4), CHAIN);
        }
    }
    assert!(slept < 20, "{slept} of 5000");
}

/// A thread that comes for a moment every few milliseconds, one of the kernel's perhaps, makes no busy worker sleep. It
/// comes between most of that worker's yields, which are as rare as its polls.
#[test]
fn one_who_comes_between_the_yields_of_a_busy_worker_does_not_stop_its_polls() {
    for gap_every in [10, 300, 3000, 10_000] {
        let mut worker = Worker::new(Bounds::default());
        let mut next = us(0);
        for chain in 0..2_000_000 {
            let polls = if chain % gap_every == 0 { 10 } else { 2 };
            worker.serve(worker.now + polls * TURN, CHAIN);
            if worker.now >= next {
                worker.is_preempted_for(us(5));
                next = worker.now + us(4321);
            }
        }
        let slept = (LATE * worker.sleeps).div_duration_f64(worker.now);
        assert!(slept < 0.05, "a gap in {gap_every} chains: {slept}");
    }
}

/// Somebody computes on the processor of a worker that yields seldom, and has every other turn.
#[test]
fn a_busy_worker_beside_one_who_computes_stops_polling() {
    let mut worker = Worker::new(Bounds::default());
    worker.others = us(3000);
    let mut next = us(3000);
    for chain in 0..10_000_000 {
        let polls = if chain % 3000 == 0 { 10 } else { 6 };
        worker.serve(worker.now + polls * TURN, CHAIN);
        if worker.usage.ran >= next {
            worker.is_preempted_for(us(3000));
            next = worker.usage.ran + us(3000);
        }
    }
    let share = (TURN * worker.polls).div_duration_f64(worker.now);
    assert!(share < 0.2, "{share}");
}

/// Somebody computed there for a while. A thread of the kernel that still comes for a moment does not keep the polls
/// off.
#[test]
fn polls_come_back_though_somebody_still_comes_for_a_moment() {
    let mut worker = Worker::new(Bounds::default());
    worker.others = us(3000);
    worker.load(20_000, us(20), us(0));
    worker.others = us(0);
    let (mut next, mut slept) = (worker.now, 0);
    for request in 0..200_000 {
        let polled = worker.serve(worker.now + us(20), CHAIN);
        if worker.now >= next {
            // A sleeper is not preempted. The pauses of the worker are no multiple of its times.
            if polled {
                worker.is_preempted_for(us(5));
            }
            next = worker.now + us(4321);
        }
        slept += u32::from(request >= 100_000 && !polled);
    }
    assert!(slept < 5000, "{slept} of 100 000");
}

/// The driver shares this processor and answers its call at once, or others wait for it.
#[test]
fn a_worker_whose_processor_others_want_stops_polling() {
    for (pause, others) in [(4, us(0)), (20, us(5)), (20, us(3000))] {
        let mut worker = Worker::new(Bounds::default());
        worker.load(500, us(pause), us(0));
        worker.others = others;
        worker.is_preempted = others.is_zero();
        worker.load(200, us(pause), us(0));
        let (now, polls) = (worker.now, worker.polls);
        let (sleeps, _) = worker.load(20_000, us(pause), us(0));
        let polled = TURN * (worker.polls - polls);
        assert!(
            sleeps > 0.9 && polled * 50 < worker.now - now,
            "{others:?}: {sleeps}, {polled:?}"
        );
        // It is alone again.
        (worker.others, worker.is_preempted) = (Duration::ZERO, false);
        worker.load(10_000, us(pause), us(0));
        assert_eq!(worker.load(1000, us(pause), us(0)).0, 0.0);
    }
}

#[test]
fn others_are_noticed_though_they_do_not_run_at_each_yield() {
    let mut worker = Worker::new(Bounds::default());
    (worker.others, worker.owed) = (us(3000), 2);
    worker.load(1000, us(20), us(0));
    let (now, preemptions) = (worker.now, worker.usage.preemptions);
    worker.load(20_000, us(20), us(0));
    let taken = (worker.usage.preemptions - preemptions) * 3000;
    assert!(us(taken) * 20 < worker.now - now, "{taken} µs");
}

#[test]
fn one_who_comes_once_in_a_while_stops_the_polls_for_a_moment() {
    let mut worker = Worker::new(Bounds::default());
    worker.load(1000, us(20), us(0));
    let mut slept = 0.0;
    for _ in 0..100 {
        worker.others = us(1200);
        let before = worker.now;
        while worker.now < before + us(1000) {
            worker.load(1, us(20), us(0));
        }
        worker.others = Duration::ZERO;
        slept += worker.load(1000, us(20), us(0)).0;
    }
    assert!(slept < 0.003 * 100.0, "{slept} %");
}

#[test]
fn the_budget_bounds_the_share_of_the_time_that_is_polled() {
    for cpu in [0, 1, 10, 25, 99] {
        let bounds = Bounds {
            cpu,
            ..Bounds::default()
        };
        let mut worker = Worker::new(bounds);
        worker.load(10_000, us(30), us(0));
        let share = (TURN * worker.polls).div_duration_f64(worker.now) * 100.0;
        assert!(share <= f64::from(cpu) + 1.0, "{share} of {cpu} %");
        assert!(share >= f64::from(cpu.min(40)) * 0.5, "{share} of {cpu} %");
    }
}

#[test]
fn what_was_slept_through_is_not_held_against_the_budget() {
    for cpu in [1, 25, 99] {
        let bounds = Bounds {
            cpu,
            ..Bounds::default()
        };
        let mut worker = Worker::new(bounds);
        worker.load(1000, us(10), us(0));
        // An hour of silence, and then somebody wakes it for nothing.
        while worker.after_turn(Progress::NONE) != Block {
            worker.now += TURN;
        }
        worker.now += Duration::from_secs(3600);
        worker.policy.woke(worker.now);
        while worker.after_turn(Progress::NONE) != Block {
            worker.now += TURN;
        }
        // A second after that there is a load again.
        worker.load(1, us(1_000_000), us(0));
        let polls = worker.polls;
        worker.load(100_000, us(10), us(0));
        assert!(worker.polls > polls, "none in {:?} at {cpu} %", worker.now);
    }
}

#[test]
fn a_disk_that_answers_from_now_on_by_the_next_turn_is_not_slow_any_more() {
    let mut worker = Worker::new(Bounds::default());
    worker.load(1000, us(20), us(2000));
    worker.in_flight = 0;
    let mut slept = 0;
    for request in 0..100_000 {
        let polled = worker.serve(worker.now + us(20), CHAIN);
        assert_eq!(worker.after_turn(COMPLETION), Spin);
        slept += u32::from(!polled && request >= 50_000);
    }
    assert_eq!(slept, 0, "of 50 000, three seconds later");
}

#[test]
fn no_poll_is_longer_than_the_bound() {
    for max in [0, 10, 50, 1000] {
        let bounds = Bounds {
            max: us(max),
            cpu: 100,
        };
        let mut worker = Worker::new(bounds);
        for _ in 0..100 {
            let polls = worker.polls;
            let due = worker.now + Duration::from_secs(1);
            worker.serve(due, CHAIN);
            assert!(TURN * (worker.polls - polls) <= us(max + 1), "{max}");
        }
    }
}

#[test]
fn polls_may_be_unbounded() {
    let max = Duration::MAX;
    let mut worker = Worker::new(Bounds { max, cpu: 100 });
    // Three fail, as each gap is longer than eight times the last.
    for pause in [100, 2000, 50_000, 100, 100] {
        worker.load(1, us(pause), us(0));
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
        before: Usage::default(),
        after: Usage::default(),
    };
    policy.gave_way(now, yielded);
    assert_eq!(policy.take_polled_ns(), 300_000);
}
