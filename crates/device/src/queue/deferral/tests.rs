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
            self.deferral.restart();
            calls[usize::from(made)] += 1;
        }
        (calls[0], calls[1])
    }

    /// The same for so many bursts of so many ms, of a call every 20 µs, with pauses of 50 ms before each.
    fn bursts(&mut self, bursts: u32, ms: u64, at_once: u16, held: u16) -> (u32, u32) {
        let each = (0..bursts).map(|_| {
            self.now += Duration::from_millis(50);
            self.run(ms, 20, at_once, held)
        });
        each.fold((0, 0), |all, burst| (all.0 + burst.0, all.1 + burst.1))
    }

    /// Under this load calls are made at once in the end, but for rare trials.
    fn ends_at_once(&mut self, each: u64, at_once: u16, held: u16) {
        self.run(1000, each, at_once, held);
        let (held, at_once) = self.run(10_000, each, at_once, held);
        assert!(at_once > 40 * held, "{held} held, {at_once} at once");
        assert!(held > 0, "it is tried again");
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
    Load::new().ends_at_once(20, 3, 1);
}

#[test]
fn what_makes_no_difference_is_not_held() {
    Load::new().ends_at_once(20, 2, 2);
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
    let (held, at_once) = load.bursts(10, 20, 1, 3);
    // The first 100 of each, and 200 of each trial, for which it is time in every fourth at most.
    assert!(at_once < 1800, "{held} held, {at_once} at once");
}

#[test]
fn a_trial_goes_on_in_the_next_burst() {
    let mut load = Load::new();
    // Of the 300 calls of each burst the first 100 are made at once.
    load.bursts(300, 6, 2, 6);
    let (held, at_once) = load.bursts(100, 6, 2, 6);
    assert!(at_once < 12_000, "{held} held, {at_once} at once");
    load.bursts(300, 6, 2, 1);
    let (held, at_once) = load.bursts(100, 6, 2, 1);
    assert!(held < 2000, "{held} held, {at_once} at once");
}

#[test]
fn a_way_so_bad_that_it_looks_like_a_pause_is_not_tried_for_ever() {
    Load::new().ends_at_once(50, 1, 0);
}

#[test]
fn a_wait_that_becomes_so_bad_is_given_up() {
    let mut load = Load::new();
    load.run(1000, 20, 1, 3);
    load.ends_at_once(50, 1, 0);
}

#[test]
fn in_bursts_too_short_for_a_block_nothing_is_held_for_ever() {
    let mut load = Load::new();
    load.run(1000, 20, 1, 3);
    assert!(load.bursts(20, 3, 1, 3).0 > 0, "as before");
    assert_eq!(load.bursts(20, 3, 1, 3).0, 0);
}

/// A guest's clock may tick every 4 ms, and the second half of that time be worse, whatever the way.
#[test]
fn what_comes_at_the_pace_of_the_blocks_does_not_count_for_a_way() {
    for phase in 0..4 {
        let begin = Instant::now();
        let (mut deferral, mut held) = (Deferral::new(begin), 0);
        for call in 0..100_000_u64 {
            let at = call * 20;
            if !deferral.is_made(begin + Duration::from_micros(at)) {
                held += 1;
            }
            let is_good = (at / 1000 + phase) % 4 < 2;
            deferral.shown(if is_good { 3 } else { 1 });
            deferral.release();
            deferral.restart();
        }
        assert!(held < 5000, "{held} of 100,000 held with phase {phase}");
    }
}

#[test]
fn a_wait_that_gains_little_any_more_is_given_up() {
    let mut load = Load::new();
    load.run(1000, 20, 1, 3);
    load.ends_at_once(20, 20, 21);
}

#[test]
fn a_call_waits_until_it_is_quiet_and_no_longer_than_the_most() {
    let start = Instant::now();
    let mut hold = Deferral::waiting();
    let us = |us| start + Duration::from_micros(us);
    assert!(!hold.is_made(us(10)));
    assert!(!hold.is_over(us(11), false));
    assert!(!hold.is_over(us(13), true));
    assert!(!hold.is_over(us(14), false));
    assert!(!hold.is_over(us(13) + QUIET, false));
    assert!(hold.is_over(us(14) + QUIET, false));
    assert!(!hold.is_over(us(109), true));
    assert!(hold.is_over(us(110), true), "a hundred since it was due");
    assert!(hold.release() && !hold.release());
}

/// A driver that has so many in flight: how many does each of so many calls gather?
fn gathers(hold: &mut Deferral, in_flight: u64, calls: usize) -> Vec<u64> {
    let start = Instant::now();
    let call = |_| {
        hold.shown(1);
        if !hold.is_made(start) {
            for _ in 1..in_flight {
                if hold.is_over(start, true) {
                    break;
                }
                hold.shown(1);
            }
            assert!(hold.release());
        }
        let gathered = hold.gathered.count;
        hold.restart();
        gathered
    };
    (0..calls).map(call).collect()
}

#[test]
fn a_call_does_not_wait_for_more_than_the_driver_has() {
    let mut hold = Deferral::waiting();
    assert_eq!(gathers(&mut hold, 4, 8), [4; 8]);
    let start = Instant::now();
    for wait in 0..8 {
        hold.shown(3);
        assert!(!hold.is_made(start));
        assert!(!hold.is_over(start, true), "one is missing");
        hold.shown(8);
        // In the last of a period there may be more.
        assert_eq!(hold.is_over(start, true), wait < 7, "{wait}");
        assert!(hold.release());
        hold.restart();
    }
}

#[test]
fn a_driver_that_has_more_or_fewer_in_flight_is_noticed() {
    let mut hold = Deferral::waiting();
    gathers(&mut hold, 4, 8);
    assert_eq!(gathers(&mut hold, 16, 8), [4, 4, 4, 4, 4, 4, 4, 16]);
    assert_eq!(gathers(&mut hold, 16, 8), [16; 8]);
    assert_eq!(gathers(&mut hold, 1, 8), [1; 8], "each of them in quiet");
    hold.shown(1);
    assert!(hold.is_made(Instant::now()), "that is all there is");
}

#[test]
fn what_is_usual_is_the_most_of_a_period() {
    let mut hold = Deferral::waiting();
    gathers(&mut hold, 4, 1);
    gathers(&mut hold, 2, 7);
    assert_eq!(gathers(&mut hold, 16, 7), [4; 7]);
}

#[test]
fn what_no_call_waited_for_counts_for_no_wait() {
    let mut hold = Deferral::waiting();
    hold.shown(100);
    hold.restart();
    for _ in 0..8 {
        assert!(!hold.release(), "there is none that waits");
    }
    assert_eq!(gathers(&mut hold, 4, 8), [4; 8]);
    hold.shown(4);
    assert!(hold.is_made(Instant::now()));
}
