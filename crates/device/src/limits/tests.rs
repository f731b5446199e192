use std::sync::Arc;
use std::time::Duration;

use super::bucket::{Buckets, TICKS_PER_SECOND};
use super::*;

fn rate(per_second: u64, burst: Option<u64>) -> Rate {
    let positive = |number| NonZeroU64::new(number).unwrap();
    Rate {
        per_second: positive(per_second),
        burst: burst.map(positive),
    }
}

fn limits(each: &[(&str, u64, Option<u64>)]) -> Limits {
    let mut limits = Limits::default();
    for &(word, per_second, burst) in each {
        limits.set(Limited::of(word).unwrap(), Some(rate(per_second, burst)));
    }
    limits
}

/// How many requests of `bytes` are let through in `seconds`, by a queue that sleeps until its time, and `late` longer.
fn through(limits: &Limits, flow: Flow, bytes: u64, seconds: u64, late: u64) -> u64 {
    let buckets = Buckets::new(limits);
    // Long after the start: the buckets are full.
    let begin = 1000 * TICKS_PER_SECOND;
    let (mut now, mut count) = (begin, 0);
    loop {
        if let Err(until) = buckets.take(flow, bytes, now) {
            assert!(until > now);
            now = until + late;
        }
        if now >= begin + seconds * TICKS_PER_SECOND {
            return count;
        }
        count += 1;
    }
}

/// Late by a tenth of a millisecond, as sleepers are.
const LATE: u64 = TICKS_PER_SECOND / 10_000;

#[test]
fn what_comes_through_is_the_limit_within_half_a_percent() {
    for (word, per_second, bytes, wanted) in [
        ("iops-total", 1000, 4096, 1000),
        ("iops-total", 500_000, 4096, 500_000),
        ("iops-read", 333_333, 512, 333_333),
        ("bps-total", 10 << 20, 4096, 2560),
        ("bps-total", 10 << 20, 64 << 10, 160),
        ("bps-read", 2 << 30, 4096, 524_288),
        ("bps-read", 100 << 20, 512, 204_800),
        ("bps-read", 2 << 30, 1 << 20, 2048),
    ] {
        for late in [0, LATE] {
            let seconds = 5;
            let count = through(
                &limits(&[(word, per_second, None)]),
                Flow::Read,
                bytes,
                seconds,
                late,
            );
            let wanted = wanted * seconds;
            assert!(
                (wanted * 995 / 1000..=wanted * 1005 / 1000).contains(&count),
                "{word}={per_second}, {bytes} bytes, late {late}: {count}, not {wanted}"
            );
        }
    }
}

#[test]
fn reads_and_writes_are_limited_apart_and_together() {
    let flows = [Flow::Read, Flow::Write];
    let counts = |each: &[(&str, u64, Option<u64>)]| {
        flows.map(|flow| through(&limits(each), flow, 4096, 1, 0))
    };
    let near = |counts: [u64; 2], wanted: [u64; 2]| {
        for (count, wanted) in counts.into_iter().zip(wanted) {
            assert!(count.abs_diff(wanted) <= wanted / 40, "{counts:?}");
        }
    };
    near(
        counts(&[("iops-read", 1000, None), ("iops-write", 500, None)]),
        [1000, 500],
    );
    near(
        counts(&[("iops-total", 800, None), ("bps-write", 4096 * 200, None)]),
        [800, 200],
    );
    // What the smallest lets through counts for all.
    near(
        counts(&[("iops-total", 800, None), ("iops-read", 300, None)]),
        [300, 800],
    );
}

#[test]
fn a_burst_is_let_through_at_once_and_only_after_a_pause() {
    let buckets = Buckets::new(&limits(&[("iops-total", 100, Some(250))]));
    let at_once = |now| {
        let mut count = 0;
        while buckets.take(Flow::Write, 0, now).is_ok() {
            count += 1;
        }
        buckets.give_back(Flow::Write, 0);
        count
    };
    let start = 10 * TICKS_PER_SECOND;
    assert_eq!(at_once(start), 250);
    assert_eq!(at_once(start), 0);
    assert_eq!(at_once(start + TICKS_PER_SECOND), 100);
    assert_eq!(at_once(start + 100 * TICKS_PER_SECOND), 250);
}

#[test]
fn a_burst_may_be_more_than_comes_in_hours() {
    let limits = limits(&[("iops-total", 1, Some(100_000))]);
    assert_eq!(through(&limits, Flow::Write, 4096, 1, 0), 100_000);
}

#[test]
fn a_request_larger_than_the_bucket_has_its_turn_and_is_paid_for() {
    let buckets = Buckets::new(&limits(&[("bps-total", 1 << 20, None)]));
    let start = 10 * TICKS_PER_SECOND;
    assert_eq!(buckets.take(Flow::Read, 4 << 20, start), Ok(()));
    let until = buckets.take(Flow::Read, 512, start).unwrap_err();
    let waits = (until - start) * 100 / TICKS_PER_SECOND;
    assert!((390..=400).contains(&waits), "{waits}");
    // What moves no bytes does not wait for them.
    assert_eq!(buckets.take(Flow::Write, 0, start), Ok(()));
}

#[test]
fn numbers_of_any_size_do_not_overflow() {
    for (per_second, bytes) in [(1, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 1)] {
        let buckets = Buckets::new(&limits(&[("bps-total", per_second, Some(u64::MAX))]));
        for _ in 0..3 {
            let _ = buckets.take(Flow::Read, bytes, u64::MAX - 1);
        }
    }
}

fn nothing() {}

#[test]
fn a_change_ends_a_wait_and_the_same_again_changes_nothing() {
    let limiter = Arc::new(Limiter::default());
    let mut throttle = Throttle::new(Arc::clone(&limiter));
    assert!(!throttle.waits(nothing) && !throttle.is_limited());
    let slow = limits(&[("bps-total", 1, None)]);
    limiter.set(slow);
    assert!(!throttle.waits(nothing) && throttle.is_limited());
    assert_eq!(throttle.admits(Flow::Read, 512), Verdict::Passes);
    assert_eq!(throttle.admits(Flow::Read, 512), Verdict::Waits);
    limiter.set(slow);
    assert!(throttle.waits(nothing) && throttle.is_waiting());
    let remains = throttle.remains().unwrap();
    // It has some minutes to wait.
    assert!(remains > Duration::from_secs(300), "{remains:?}");
    for changed in [limits(&[("iops-total", 1000, None)]), Limits::default()] {
        // Another than the one that waits already.
        assert_eq!(throttle.admits(Flow::Read, 1024), Verdict::Waits);
        limiter.set(changed);
        assert_eq!(throttle.remains(), Some(Duration::ZERO));
        let mut ended = 0;
        assert!(!throttle.waits(|| ended += 1));
        assert_eq!((ended, throttle.remains()), (1, None));
        limiter.set(slow);
        assert!(!throttle.waits(nothing));
        assert_eq!(throttle.admits(Flow::Read, 512), Verdict::Passes);
    }
}

#[test]
fn those_that_wait_are_let_through_in_the_order_in_which_they_came() {
    let buckets = Buckets::new(&limits(&[("iops-total", 1000, Some(1))]));
    let start = 10 * TICKS_PER_SECOND;
    let times = [(); 5].map(|()| buckets.take(Flow::Read, 512, start));
    let of = |thousandth: u64| Err(start + thousandth * TICKS_PER_SECOND / 1000);
    assert_eq!(times, [Ok(()), of(1), of(2), of(3), of(4)]);
    // One that asks when the first is let through is behind the last.
    let later = start + TICKS_PER_SECOND / 1000;
    assert_eq!(buckets.take(Flow::Read, 512, later), of(5));
}

#[test]
fn a_request_that_has_waited_is_let_through_whatever_was_asked_meanwhile() {
    let limiter = Arc::new(Limiter::default());
    limiter.set(limits(&[("iops-total", 10, Some(1))]));
    let mut throttle = Throttle::new(Arc::clone(&limiter));
    let mut after_its_wait = |bytes| {
        while throttle.waits(nothing) {
            std::hint::spin_loop();
        }
        throttle.admits(Flow::Write, bytes)
    };
    assert_eq!(after_its_wait(512), Verdict::Passes);
    assert_eq!(after_its_wait(512), Verdict::Waits);
    let mut others = [(); 1000].map(|()| Throttle::new(Arc::clone(&limiter)));
    for other in &mut others {
        assert_eq!(other.admits(Flow::Read, 4096), Verdict::Waits);
    }
    assert_eq!(after_its_wait(512), Verdict::Passes);
    assert_eq!(after_its_wait(512), Verdict::Waits);
    let minute = Duration::from_secs(60);
    assert!(throttle.remains().unwrap() > minute);
    // Their queues end, and the driver puts another request in the place of this one: neither has cost anything.
    drop(others);
    assert_eq!(throttle.admits(Flow::Write, 1024), Verdict::Waits);
    assert!(throttle.remains().unwrap() < minute);
}

#[test]
fn queues_that_share_a_limiter_share_its_tokens() {
    let limiter = Arc::new(Limiter::default());
    limiter.set(limits(&[("iops-total", 1, Some(10))]));
    let mut queues = [(); 2].map(|()| Throttle::new(Arc::clone(&limiter)));
    let mut through = 0;
    for at in 0..20 {
        let queue = &mut queues[at % 2];
        if !queue.waits(nothing) {
            through += usize::from(queue.admits(Flow::Read, 512) == Verdict::Passes);
        }
    }
    assert_eq!(through, 10);
}

/// The tokens of a request of gigabytes are given back as its queue stops: no other waits for them any longer.
#[test]
fn what_waits_behind_a_queue_that_stops_takes_its_place() {
    let limiter = Arc::new(Limiter::default());
    limiter.set(limits(&[("bps-total", 1 << 20, Some(1 << 20))]));
    let mut queues = [(); 3].map(|()| Throttle::new(Arc::clone(&limiter)));
    let mut asks = |queue: usize, bytes| {
        queues[queue].waits(nothing);
        queues[queue].admits(Flow::Read, bytes)
    };
    assert_eq!(asks(0, 8 << 20), Verdict::Passes);
    assert_eq!(asks(0, 8 << 30), Verdict::Waits);
    assert_eq!(asks(1, 4096), Verdict::Waits);
    assert_eq!(asks(2, 4096), Verdict::Waits);
    let [stops, mut one, other] = queues;
    assert!(one.remains() > Some(Duration::from_secs(3600)));
    drop(stops);
    assert_eq!(one.remains(), Some(Duration::ZERO));
    assert!(!one.waits(nothing), "it takes its tokens anew");
    assert_eq!(one.admits(Flow::Read, 4096), Verdict::Waits);
    assert!(one.remains() < Some(Duration::from_secs(9)));
    // One whose tokens were counted before that gives nothing back.
    let before = one.remains();
    drop(other);
    drop(Throttle::new(Arc::clone(&limiter)));
    assert!(one.remains() <= before && one.remains() > Some(Duration::ZERO));
}
