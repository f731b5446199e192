//! The kick comes after the queue's lock is released, and the recorder sees it.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::time::Duration;

use driver_cases::{Case, patiently};
use pollux_driver::{Driver, Experiment, KickLock, LockTimes, Options};
use pollux_tests::drive::Mode;
use pollux_tests::subject::{Disk, Subject};

const SIZE: u64 = 32 << 20;

/// Eight threads share a queue of a server that sleeps whenever it can, so that there are kicks. Returns
/// how many, how many of them under the lock, and its times.
fn eight_threads(kick_lock: KickLock, record_lock: bool) -> (u64, u64, Option<LockTimes>) {
    let sleepy = ["--poll", "never", "--kicks", "per-turn"];
    let subject = Subject::start(Disk::memory(SIZE, 1), &sleepy).unwrap();
    patiently(move || {
        let options = Options::default().experiment(Experiment {
            kick_lock,
            record_lock,
            ..Experiment::default()
        });
        let driver = Driver::connect(subject.socket(), &options).unwrap();
        let case = Case {
            options,
            modes: [
                [Mode::Wait; 4],
                [Mode::Poll, Mode::Futures, Mode::Wait, Mode::Wait],
            ]
            .concat(),
            longest: 64 << 10,
            ..Case::new(Duration::from_secs(3))
        };
        // Its times are those of the queue while anybody has it.
        let queue = driver.queue(0).unwrap();
        case.run_on(&driver);
        let counters = queue.counters();
        (
            counters.kicks,
            counters.kicks_under_lock,
            queue.lock_times(),
        )
    })
}

/// The recorder has seen as many holds as there were kicks at least: each is decided under the lock.
fn recorded(times: Option<LockTimes>, kicks: u64) {
    let times = times.expect("it was asked for");
    let (holds, waits) = (times.hold.len(), times.wait.len());
    println!(
        "{holds} holds, {waits} waits, {} preempted",
        times.preempted
    );
    assert_eq!(holds, waits);
    assert!(
        holds + times.preempted >= kicks,
        "{holds} holds, {kicks} kicks"
    );
}

#[test]
fn no_kick_is_made_under_the_lock() {
    let (kicks, under_lock, times) = eight_threads(KickLock::Released, true);
    println!("{kicks} kicks");
    assert!(kicks > 100, "{kicks} kicks are no test of it");
    assert_eq!(under_lock, 0);
    recorded(times, kicks);
}

/// The recorder would see one.
#[test]
fn a_kick_under_the_lock_is_seen() {
    let (kicks, under_lock, times) = eight_threads(KickLock::Held, true);
    println!("{kicks} kicks");
    assert!(kicks > 100, "{kicks} kicks are no test of it");
    assert_eq!(under_lock, kicks);
    recorded(times, kicks);
}

#[test]
fn nothing_is_recorded_unless_it_is_asked_for() {
    let (_, under_lock, times) = eight_threads(KickLock::Released, false);
    assert_eq!(under_lock, 0);
    assert!(times.is_none());
}
