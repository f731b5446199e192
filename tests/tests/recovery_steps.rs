//! The daemon is killed after each single change of what outlives it: of the in-flight record, of the used
//! ring. Its worker is run instruction by instruction for that.
//!
//! `recovery.rs` kills it at any moment, which hardly ever is one of the few nanoseconds that matter.
//! To see it fail: exchange two stores of `device/inflight/record.rs`.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;

use pollux_tests::executions::Executions;
use pollux_tests::frontend::{Driver, Inflight, Plan, QUEUE_ENTRIES, Status};
use pollux_tests::process::{Process, eventually};
use pollux_tests::records::{RECORD, Record};
use pollux_tests::server::Server;
use pollux_tests::stepping::Stepping;
use rustix::process::Signal;
use tempfile::TempDir;

/// Requests that are taken together, and published together.
const BATCH: u16 = 3;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};
/// Far more than it takes, the disk included.
const MOST_STEPS: u32 = 3_000_000;

/// What outlives the daemon.
#[derive(PartialEq, Eq)]
struct Left {
    /// The part that changes: slot `n` begins at descriptor `4 n`.
    record: [u8; 16 + 16 * (4 * BATCH as usize)],
    used: u16,
}

impl Left {
    fn now(driver: &Driver, inflight: &Inflight) -> Self {
        let record = inflight.beginning().unwrap();
        let used = driver.queues[0].used();
        Self { record, used }
    }
}

/// Lets the worker of `server` go on until what is left has changed `changes` times; false if nothing is in
/// flight before that, and nothing will change any more.
fn step(worker: &Stepping, driver: &Driver, inflight: &Inflight, changes: u16) -> bool {
    let mut left = Left::now(driver, inflight);
    let mut so_many = 0;
    for _ in 0..MOST_STEPS {
        worker.step().unwrap();
        let now = Left::now(driver, inflight);
        if now == left {
            continue;
        }
        left = now;
        so_many += 1;
        if so_many == changes {
            return true;
        }
        let used_idx = u16::from_ne_bytes([left.record[14], left.record[15]]);
        if left.used == driver.queues[0].published() && used_idx == left.used {
            return false;
        }
    }
    panic!("after {MOST_STEPS} steps only {so_many} changes");
}

#[test]
fn a_daemon_killed_after_any_store_loses_and_repeats_nothing() {
    // A disk whose transfers the worker makes itself: nothing else runs.
    let folder = TempDir::new_in("/dev/shm").unwrap();
    let image = folder.path().join("image");
    let bytes = u64::from(BATCH) * RECORD as u64;
    File::create(&image).unwrap().set_len(bytes).unwrap();
    let mut executions = Executions::open(&folder.path().join("log")).unwrap();
    let spec = executions.spec("", &format!("file:path={}", image.display()));
    let socket = folder.path().join("disk.sock");
    let serve = || Server::pollux(&socket, &["--disk", &spec]).unwrap();

    let mut server = serve();
    let mut driver = Driver::connect(server.socket(), ONE_QUEUE).unwrap();
    let inflight = Inflight::get(&driver.frontend, 1, QUEUE_ENTRIES).unwrap();
    inflight.set(&driver.frontend).unwrap();
    let record = |place: u16, sequence| Record {
        seed: 1,
        place: place.into(),
        sequence,
    };
    let mut changes = 0;
    loop {
        changes += 1;
        let sequence = u64::from(changes);
        let process = Process::new(server.pid());
        let thread = process.thread_named("worker-0").unwrap();
        let asleep = || process.is_thread_asleep(thread).unwrap();
        eventually(asleep, || "the worker is busy with nothing".into());
        let worker = Stepping::stop(thread).unwrap();
        // Another order each time, so that nothing is stored that was there before.
        for slot in (0..BATCH).map(|slot| (slot + changes) % BATCH) {
            let sector = u64::from(slot) * RECORD as u64 / 512;
            let page = record(slot, sequence).encode();
            driver.queues[0].write_page(slot, sector, &page);
        }
        driver.queues[0].publish_and_kick();
        let killed_within = step(&worker, &driver, &inflight, changes);
        server.signal(Signal::KILL).unwrap();
        drop(worker);
        server.end_by(Signal::KILL).unwrap();

        let mut back = driver.queues[0].take();
        for slot in &back {
            executions.seen(record(*slot, sequence)).unwrap();
        }
        executions.killed().unwrap();
        server = serve();
        driver.connect_again(server.socket(), &inflight).unwrap();
        let rest = driver.queues[0].finish();
        for slot in &rest {
            executions.seen(record(*slot, sequence)).unwrap();
        }
        back.extend(rest);
        back.sort_unstable();
        assert_eq!(back, [0, 1, 2], "change {changes}");
        for slot in back {
            assert_eq!(driver.queues[0].status(slot), Status::Ok);
        }
        if !killed_within {
            break;
        }
    }
    let tally = executions.check(|record| record.place).unwrap();
    println!("killed after each of {changes} changes: {tally:?}");
    // Taken: a counter and a flag each. Given back: the list, the index, the flags, and the index noted.
    assert!(changes > 10, "{changes} changes are not all there are");
    assert!(tally.repeated > usize::from(BATCH));
}
