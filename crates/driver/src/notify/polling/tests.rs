use super::*;

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Waits one after the other, of `gap` µs where they are polled, polls of a µs: how many of so many are?
fn polled(polls: &mut Polling, now: &mut Duration, gap: u64, waits: u32) -> u32 {
    let mut polled = 0;
    for _ in 0..waits {
        let end = *now + us(gap);
        let mut sleeps = false;
        while *now < end && !sleeps {
            sleeps = polls.empty(*now) == Next::Sleep;
            *now += us(1);
        }
        if sleeps {
            *now = end + us(30);
        }
        polled += u32::from(!sleeps);
        polls.over(|| *now);
    }
    polled
}

#[test]
fn what_comes_soon_is_polled_for_and_what_comes_late_is_not() {
    let (mut polls, mut now) = (Polling::new(), us(0));
    assert_eq!(polled(&mut polls, &mut now, 30, 100), 100);
    assert_eq!(polled(&mut polls, &mut now, 200, 1000), 0);
    let mut rounds = 0;
    while polled(&mut polls, &mut now, 5, 1000) < 1000 {
        rounds += 1;
    }
    assert!(rounds < 10, "{rounds} thousand waits");
}

#[test]
fn what_was_there_at_once_says_nothing() {
    let (mut polls, mut now) = (Polling::new(), us(0));
    polled(&mut polls, &mut now, 200, 1000);
    for _ in 0..100 {
        polls.over(|| panic!("the clock was asked"));
    }
    assert_eq!(polls.empty(now), Next::Sleep);
}

#[test]
fn waits_that_are_given_up_in_vain_are_slept_through() {
    let (mut polls, mut now) = (Polling::new(), us(0));
    let mut polled = us(0);
    for _ in 0..10_000 {
        // A thread polls for 40 µs at a time, and nothing comes.
        let end = now + us(40);
        while now < end && polls.empty(now) != Next::Sleep {
            now += us(1);
            polled += us(1);
        }
        now = end;
        polls.given_up();
    }
    assert!(polled * 50 < now, "{polled:?} of {now:?}");
}

#[test]
fn a_wait_that_is_slept_through_takes_nothing_from_what_others_learn_meanwhile() {
    let (shared, mut now) = (SharedPolling::new(), us(0));
    let mut polls = shared.begin();
    while polls.empty(now) != Next::Sleep {
        now += us(1);
    }
    let slept = shared.sleep(polls);
    assert_eq!(shared.begin().empty(now), Next::Poll);
    for _ in 0..1000 {
        let mut others = shared.begin();
        polled(&mut others, &mut now, 200, 1);
        shared.end(others, || now);
    }
    assert_eq!(shared.begin().empty(now), Next::Sleep, "it does not pay");
    shared.wake(slept, || now);
    assert_eq!(shared.begin().empty(now), Next::Sleep, "and they know");
}

/// Threads take turns on a queue, and each is preempted for a moment now and then, in a yield or between two.
#[test]
fn a_moment_of_others_now_and_then_stops_no_polls() {
    for (took, gap) in [(0, 30), (5, 30), (0, 5), (5, 5)] {
        let (mut polls, mut now) = (Polling::new(), us(0));
        let (mut next, mut last, mut slept) = (us(0), us(0), 0);
        for _ in 0..10_000 {
            let end = now + us(gap);
            while now < end {
                match polls.empty(now) {
                    Next::Poll => {}
                    Next::Yield => {
                        let came = now >= next;
                        if came {
                            next = now + us(4321);
                        }
                        let yielded = Yielded {
                            took: us(if came { took } else { 0 }),
                            ran: now.saturating_sub(last),
                            before: 0,
                            meanwhile: u64::from(came),
                        };
                        last = now;
                        polls.gave_way(now, yielded);
                    }
                    Next::Sleep => {
                        slept += 1;
                        now = end;
                    }
                }
                now += Duration::from_nanos(50);
            }
            polls.over(|| now);
        }
        assert!(slept < 500, "{slept} of 10 000 of {gap} µs");
    }
}

#[test]
fn one_whose_processor_others_want_sleeps() {
    let (mut polls, mut now) = (Polling::new(), us(0));
    let mut yields = 0;
    for _ in 0..1000 {
        loop {
            match polls.empty(now) {
                Next::Poll => now += Duration::from_nanos(25),
                Next::Yield => {
                    yields += 1;
                    let took = us(100);
                    now += took;
                    let yielded = Yielded {
                        took,
                        ran: us(6),
                        before: 1,
                        meanwhile: 1,
                    };
                    polls.gave_way(now, yielded);
                }
                Next::Sleep => break,
            }
        }
        now += us(5);
        polls.over(|| now);
    }
    assert!(yields < 10, "{yields} times");
}
