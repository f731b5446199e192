//! The daemon is killed while the kernel makes a transfer for it, which no signal ends: until that has ended no other
//! daemon serves the image, or an old write would land on what the next one has written.
//!
//! To see it fail: let `file/lock.rs` take a lock that belongs to no process as none, once it has been waited for.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::path::Path;

use pollux_tests::frontend::{Driver, Plan, Status};
use pollux_tests::process::{Process, eventually};
use pollux_tests::records::{RECORD, Record};
use pollux_tests::server::{Ready, Server, pollux_command};
use pollux_tests::storage::{Medium, Storage};
use pollux_tests::subject::file_spec;
use rustix::process::Signal;
use tempfile::TempDir;

const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

fn record(sequence: u64) -> Record {
    Record {
        seed: 1,
        place: 0,
        sequence,
    }
}

/// Has the record written that has this number, all at the same place.
fn submit(driver: &mut Driver, sequence: u64) {
    driver.queues[0].write_page(0, 0, &record(sequence).encode());
    driver.queues[0].publish_and_kick();
}

fn finishes(driver: &mut Driver) {
    assert_eq!(driver.queues[0].finish(), [0]);
    assert_eq!(driver.queues[0].status(0), Status::Ok);
}

fn has_stuck_thread(process: Process) -> bool {
    let threads = process.threads().unwrap();
    let mut threads = threads.into_iter();
    threads.any(|thread| process.is_thread_stuck(thread).unwrap())
}

fn is_survived_with(keys: &str) {
    let Some(storage) = Storage::new(Medium::FileOnExt4, RECORD as u64) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let spec = file_spec(storage.disk(), keys);
    // Each has a socket of its own: the killed one keeps its socket as well.
    let begin = |name: &str| {
        let socket = folder.path().join(name);
        let mut command = pollux_command(&socket, &["--disk", &spec]);
        Server::begin(&mut command, &socket, Ready::LogLine).unwrap()
    };
    let serve = |name| begin(name).until(Ready::LogLine).unwrap();
    let killed = serve("killed");
    let mut driver = Driver::connect(killed.socket(), ONE_QUEUE).unwrap();
    let inflight = driver.keep_record().unwrap();

    let frozen = storage.freeze().unwrap();
    submit(&mut driver, 1);
    let process = Process::new(killed.pid());
    let stuck = || inflight.in_flight(0).unwrap() == 1 && has_stuck_thread(process);
    eventually(stuck, || "the write does not wait in the kernel".into());
    // Its end is not waited for: it comes when the write has ended.
    killed.signal(Signal::KILL).unwrap();
    let early = begin("early");
    let refused = early.says("in use");
    let ended = driver.queues[0].used();
    // Nothing must fail before this: what is stuck would not end.
    drop(frozen);
    assert!(refused, "{keys}: {}", early.log());
    let (status, log) = early.ended().unwrap();
    assert!(!status.success(), "{log}");
    assert_eq!(ended, 0, "the write did not wait in the kernel");

    let (status, log) = killed.ended().unwrap();
    assert!(!status.success(), "{log}");
    let next = serve("next");
    driver.connect_again(next.socket(), &inflight).unwrap();
    finishes(&mut driver);
    submit(&mut driver, 2);
    finishes(&mut driver);
    assert_eq!(held(storage.disk()), Some(record(2)), "{keys}");
}

/// The record that a disk of one holds.
fn held(disk: &Path) -> Option<Record> {
    Record::decode(&fs::read(disk).unwrap())
}

#[test]
fn what_a_killed_daemon_has_in_the_kernel_ends_before_another_one_serves() {
    for cache in ["writeback", "none"] {
        for engine in ["engine=io_uring,inline=off", "engine=threads"] {
            is_survived_with(&format!("cache={cache},{engine}"));
        }
    }
}
