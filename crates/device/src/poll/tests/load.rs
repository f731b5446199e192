//! Polls follow what the drivers send and how fast the disk answers.

use super::*;

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
