//! Lines that a frontend or a server can provoke at will do not fill the log's disk, and another disk's are told all
//! the same.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::time::Duration;

use pollux_tests::backend::{Backend, Plan};
use pollux_tests::client::{Client, Shape};
use pollux_tests::frontend::{Code, Raw};
use pollux_tests::hostile::Target;
use pollux_tests::process::{Process, assert_idle, eventually};
use pollux_tests::server::Server;
use rustix::process::Signal;
use tempfile::TempDir;

/// As often is provoked, and so few lines are told: those of a burst, and some for the seconds that it takes.
const TIMES: usize = 4000;
const FEW: usize = 1000;

fn tells_few(target: Target, words: &str) {
    let (status, log) = target.server.end_by(Signal::TERM).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    let lines = log.matches(words).count();
    assert!((1..FEW).contains(&lines), "{lines} lines of {words:?}");
}

#[test]
fn the_cache_mode_is_switched_all_the_time() {
    let target = Target::start(1, "");
    let driver = target.driver();
    for time in 0..TIMES {
        let mode = u8::from(time % 2 == 0);
        driver.frontend.set_config(32, &[mode]).unwrap();
    }
    drop(driver);
    tells_few(target, "switched the cache mode");
}

/// One session after the other, each refused: two lines for its begin and end, and one that says why.
fn refused(target: &Target) {
    let bad = Raw::new(Code::SetFeatures, u64::MAX.to_le_bytes().to_vec());
    for _ in 0..TIMES {
        let frontend = target.frontend();
        frontend.number(Code::GetFeatures).unwrap();
        frontend.send_raw(&bad).unwrap();
        frontend.until_closed().unwrap();
    }
}

#[test]
fn sessions_come_and_are_refused() {
    for words in [
        "was disconnected",
        "a frontend connected",
        "the session ended",
    ] {
        let target = Target::start(1, "");
        refused(&target);
        // The other disk has lines of its own.
        let other = target.other();
        let connected = || {
            let log = target.server.log();
            log.lines()
                .any(|line| line.contains("connected") && line.contains("other.sock"))
        };
        eventually(connected, || target.server.log());
        drop(other);
        tells_few(target, words);
    }
}

#[test]
fn a_ring_is_broken_all_the_time() {
    let target = Target::start(1, "");
    let mut driver = target.driver();
    for _ in 0..TIMES {
        driver.queues[0].jump(1000);
        driver.queues[0].publish_and_kick();
        driver.stop(0).unwrap();
        driver.queues[0] = driver.anew(0);
        driver.start(0).unwrap();
    }
    drop(driver);
    tells_few(target, "broke the ring");
}

#[test]
fn queues_start_without_kicks_all_the_time() {
    let target = Target::start(1, "");
    let driver = target.driver();
    for _ in 0..TIMES {
        let frontend = &driver.frontend;
        frontend.vring_fd(Code::SetVringKick, 0, None).unwrap();
    }
    drop(driver);
    tells_few(target, "sends no kicks");
}

/// A server that is a disk of the daemon's tells of a change, which makes no sense, again and again.
#[test]
fn a_server_says_nonsense_all_the_time() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let backend = Backend::start(Plan::default()).unwrap();
    let disk = format!("vhost-user:path={}", backend.socket().display());
    let server = Server::pollux(&socket, &["--disk", &disk]).unwrap();
    // No more than its socket has room for: while it waits for room, this server answers nothing.
    for _ in 0..200 {
        backend.reconfigure(4, u32::MAX);
    }
    backend.settle();
    // Now it has heard all of them.
    assert_idle(Process::new(server.pid()), Duration::from_millis(10));
    let (status, log) = server.end_by(Signal::TERM).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    let lines = log.matches("says nonsense of itself").count();
    assert!((1..100).contains(&lines), "{lines} lines");
}

/// Counters that are all zero are no news. Those of a session that was used stand below its line, in which disk and
/// time are.
#[test]
fn the_end_of_a_session_tells_what_was_requested() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=1M"]).unwrap();
    drop(Client::connect(&socket, Shape::blocking(1, 64)).unwrap());
    assert!(server.says("the session ended without a request disk="));
    assert!(!server.log().contains("peer faults"), "{}", server.log());
    let (client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
    queues[0].flush(0);
    queues[0].finish().unwrap().unwrap();
    drop((client, queues));
    assert!(server.says("rings that the driver broke\n"));
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("the session ended disk="));
    assert!(line.is_some_and(|line| line.contains(" after=")), "{log}");
    assert!(log.contains(" counters=\nrequests "), "{log}");
}
