use super::*;

/// A queue whose driver gets a call every `each` µs with so many requests: by calls at once, or held.
struct Load {
    deferral: Deferral,
    now: Instant,
}

impl Load {
    fn new() -> Self {
        let now = Instant::now();
        let deferral = Deferral::new(now);
        Self { deferral, now }
    }

    /// How many of the last calls of so many ms were held?
    fn run(&mut self, ms: u64, each: u64, at_once: u16, held: u16) -> (u32, u32) {
        let end = self.now + Duration::from_millis(ms);
        let mut calls = [0, 0];
        while self.now < end {
            self.now += Duration::from_micros(each);
            let made = self.deferral.is_made(self.now);
            self.deferral.shown(if made { at_once } else { held });
            self.deferral.release();
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
fn a_driver_that_takes_longer_for_its_next_request_is_left_alone_for_longer() {
    let (mut deferral, mut now) = (Deferral::new(Instant::now()), Instant::now());
    let mut calls = [0; QUIET.len()];
    for _ in 0..100_000 {
        now += Duration::from_micros(20);
        deferral.is_made(now);
        let way = QUIET.iter().position(|&quiet| quiet == deferral.quiet());
        let way = way.unwrap();
        deferral.shown([2, 3, 5][way]);
        deferral.release();
        calls[way] += 1;
    }
    assert!(calls[2] > 90_000, "{calls:?}");
    assert!(
        calls[..2].iter().all(|&calls| calls > 100),
        "each is tried again: {calls:?}"
    );
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
    assert!(load.deferral.is_made(load.now));
    assert_eq!(load.run(100, 1000, 1, 3).0, 0, "few requests are no load");
}

#[test]
fn a_burst_goes_on_as_the_one_before_ended() {
    let mut load = Load::new();
    load.run(1000, 20, 1, 3);
    let bursts = (0..10).map(|_| {
        load.now += Duration::from_millis(50);
        load.run(20, 20, 1, 3).1
    });
    let at_once: u32 = bursts.sum();
    // The first 100 of each, and 200 of each trial, for which it is time in every fourth at most.
    assert!(at_once < 1800, "of 10,000 calls {at_once} at once");
}

#[test]
fn bursts_that_are_too_short_for_a_trial_are_called_at_once() {
    let mut load = Load::new();
    for _ in 0..10 {
        load.now += Duration::from_millis(50);
        let (held, at_once) = load.run(5, 20, 1, 3);
        assert!(
            held <= 101 && at_once >= 149,
            "{held} held, {at_once} at once"
        );
    }
}

#[test]
fn a_call_waits_until_it_is_quiet_and_no_longer_than_the_most() {
    let start = Instant::now();
    let mut hold = Deferral::waiting(start);
    let us = |us| start + Duration::from_micros(us);
    let times = [us(10), us(11), us(13), us(14), us(19), us(20), us(61)];
    assert!(!hold.is_made(times[0]));
    assert!(!hold.is_over(times[1], false));
    assert!(!hold.is_over(times[2], true));
    assert!(!hold.is_over(times[3], false));
    assert!(!hold.is_over(times[4], false));
    assert!(hold.is_over(times[5], false), "six microseconds of quiet");
    assert!(hold.is_over(times[6], true), "fifty since it was due");
    assert!(hold.release() && !hold.release());
}
