//! How long, and how much of the time, a worker may poll.

use super::*;

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
        // An hour of silence, and then a wake-up for nothing.
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
fn a_time_in_which_the_worker_did_not_run_is_not_held_against_the_budget() {
    let bounds = Bounds {
        cpu: 25,
        ..Bounds::default()
    };
    let mut worker = Worker::new(bounds);
    worker.load(1000, us(10), us(0));
    let polls = worker.polls;
    while worker.polls < polls + 16 {
        worker.serve(worker.now + TURN, Progress::NONE);
    }
    // It is stopped, in the middle of a poll.
    worker.now += Duration::from_secs(60);
    let (back, polls) = (worker.now, worker.polls);
    worker.load(1000, us(10), us(0));
    assert!(worker.polls > polls + 100, "in {:?}", worker.now - back);
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
