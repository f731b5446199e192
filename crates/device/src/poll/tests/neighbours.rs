//! Other threads want the worker's processor.

use super::*;

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

/// Another thread computes on the processor of a worker that yields seldom, and has every other turn.
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

/// Requests 20 µs apart for a while, and a thread that comes for a moment every so often, between half and one and a
/// half times `every`: how many are slept through?
fn slept_beside_a_moment(worker: &mut Worker, requests: u32, every: Duration) -> u32 {
    let (mut next, mut slept) = (worker.now, 0);
    for request in 0..requests {
        let polled = worker.serve(worker.now + us(20), CHAIN);
        if worker.now >= next {
            // A worker that sleeps between requests runs for about half of the time.
            worker.is_preempted_for(us(5));
            next = worker.now + every / 2 + every * (request.wrapping_mul(0x9E37_79B9) >> 24) / 256;
        }
        slept += u32::from(!polled);
    }
    slept
}

/// The kernel owes the worker time when it has slept, so a thread that computes there does not run at each yield.
#[test]
fn one_who_comes_for_a_moment_hides_nobody_who_computes() {
    let mut worker = Worker::new(Bounds::default());
    (worker.others, worker.owed) = (us(3000), us(2900));
    slept_beside_a_moment(&mut worker, 20_000, us(4321));
    let (now, polls) = (worker.now, worker.polls);
    slept_beside_a_moment(&mut worker, 100_000, us(4321));
    let share = (TURN * (worker.polls - polls)).div_duration_f64(worker.now - now);
    assert!(share < 0.05, "{share}");
}

/// A thread computed there for a while. A thread of the kernel that still comes for a moment does not keep the polls
/// off.
#[test]
fn polls_come_back_though_somebody_still_comes_for_a_moment() {
    for every in [1300, 4321] {
        let mut worker = Worker::new(Bounds::default());
        worker.others = us(3000);
        worker.load(20_000, us(20), us(0));
        worker.others = us(0);
        slept_beside_a_moment(&mut worker, 100_000, us(every));
        let slept = slept_beside_a_moment(&mut worker, 100_000, us(every));
        assert!(
            slept < 10_000,
            "{slept} of 100 000 beside one every {every} µs"
        );
    }
}

/// A program took a few long turns, as it started perhaps. A thread that still comes for a moment does not make
/// the pauses longer than those turns were.
#[test]
fn a_few_long_turns_stop_the_polls_for_a_while() {
    for every in [1300, 4321, 20_000] {
        let mut worker = Worker::new(Bounds::default());
        slept_beside_a_moment(&mut worker, 20_000, us(every));
        worker.others = us(20_000);
        slept_beside_a_moment(&mut worker, 20, us(every));
        worker.others = us(0);
        let slept = slept_beside_a_moment(&mut worker, 20_000, us(every));
        assert!(
            slept < 6000,
            "{slept} of 20 000 beside one every {every} µs"
        );
    }
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
        worker.load(50_000, us(pause), us(0));
        assert_eq!(worker.load(1000, us(pause), us(0)).0, 0.0);
    }
}

#[test]
fn others_are_noticed_though_they_do_not_run_at_each_yield() {
    let mut worker = Worker::new(Bounds::default());
    (worker.others, worker.owed) = (us(3000), us(2900));
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
