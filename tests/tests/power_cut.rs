//! The daemon is killed and the power fails in the same moment: what was durable is there afterwards.
//!
//! [`Storage`] forgets what was never made durable, and records tell what is missing. A client in this
//! process kills the daemon at many moments, each known to the request; a Linux guest does to it what
//! file systems and databases do.
//!
//! To see them fail: let `file/sync.rs` say that all is well without `fdatasync`, or let a write complete
//! before it is made.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::collections::BTreeSet;
use std::fs;

use blkio::ReqFlags;
use fastrand::Rng;
use pollux_tests::client::{Client, Done, Memory, Queue, Shape};
use pollux_tests::guest::{Driver, Export, Kernel, Lab, System};
use pollux_tests::qcow2::QemuImg;
use pollux_tests::random::seed;
use pollux_tests::records::{Expected, Job, RECORD, Record};
use pollux_tests::server::Server;
use pollux_tests::storage::{Medium, Storage};
use pollux_tests::subject::file_spec;
use rustix::process::Signal;
use tempfile::TempDir;

/// Records on a disk of the client's.
const PLACES: u64 = 2048;
const DISK: u64 = PLACES * RECORD as u64;

/// What a completed request says about durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// Writes are durable when a flush that was submitted after their completion has completed.
    Flush,
    /// Every write is durable when it has completed.
    Write,
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    Write(Record),
    /// What it covers are the first so many of the writes that have completed.
    Flush(usize),
}

const WRITES: usize = 16;
const FLUSHES: usize = 2;

/// Writes and flushes that never wait for each other.
struct Storm {
    queue: Queue,
    memory: Memory,
    job: Job,
    promise: Promise,
    expected: Expected,
    slots: Vec<Option<InFlight>>,
    busy: BTreeSet<u64>,
    completed: Vec<Record>,
}

impl Storm {
    fn start(server: &Server, seed: u64, promise: Promise) -> Self {
        let (client, mut queues) = Client::connect(server.socket(), Shape::polling(1, 64)).unwrap();
        Self {
            queue: queues.remove(0),
            memory: client.memory(WRITES * RECORD).unwrap(),
            job: Job::new(seed, 0, PLACES),
            promise,
            expected: Expected::new(seed),
            slots: vec![None; WRITES + FLUSHES],
            busy: BTreeSet::new(),
            completed: Vec::new(),
        }
    }

    /// Replaces what has come back, without waiting: the server may be dead at any moment.
    fn go_on(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_none() {
                self.slots[slot] = self.submit(slot);
            }
        }
        self.queue.wait(0).unwrap();
        while let Some(done) = self.queue.take() {
            self.note(done);
        }
    }

    fn submit(&mut self, slot: usize) -> Option<InFlight> {
        if slot >= WRITES {
            // With nothing new to cover, a flush says nothing.
            let worth = self.promise == Promise::Flush && !self.completed.is_empty();
            return worth.then(|| {
                self.queue.flush(slot);
                InFlight::Flush(self.completed.len())
            });
        }
        // Of two writes to one place at the same time either may win.
        let record = std::iter::repeat_with(|| self.job.next_record())
            .find(|record| !self.busy.contains(&record.place))?;
        self.busy.insert(record.place);
        let range = slot * RECORD..(slot + 1) * RECORD;
        self.memory.put(range.start, &record.encode());
        let offset = record.place * RECORD as u64;
        self.queue
            .write(offset, &self.memory, range, slot, ReqFlags::empty());
        Some(InFlight::Write(record))
    }

    fn note(&mut self, done: Done) {
        done.result.unwrap();
        let request = self.slots[done.token].take();
        match request.expect("a request comes back once") {
            InFlight::Write(record) => {
                self.busy.remove(&record.place);
                match self.promise {
                    Promise::Flush => self.completed.push(record),
                    Promise::Write => self.expected.cover(record),
                }
            }
            InFlight::Flush(covers) => {
                for &record in &self.completed[..covers] {
                    self.expected.cover(record);
                }
            }
        }
    }

    /// Puts the older record where a write that nobody had been promised is there in part: it was under way when the
    /// power failed.
    fn forget_torn(&self, survived: &mut [u8]) {
        let in_flight = self.slots.iter().filter_map(|slot| match slot {
            Some(InFlight::Write(record)) => Some(*record),
            _ => None,
        });
        let unpromised: Vec<Record> = self.completed.iter().copied().chain(in_flight).collect();
        for (place, block) in (0..).zip(survived.chunks_mut(RECORD)) {
            if Record::decode(block).is_some() {
                continue;
            }
            let least = self.expected.least(place);
            let sequence = least.map_or(0, |record| record.sequence);
            let here = unpromised.iter().filter(|record| record.place == place);
            let later = here.filter(|record| record.sequence > sequence);
            let mut olds = vec![least.map_or([0; RECORD], Record::encode)];
            olds.extend(later.clone().map(|record| record.encode()));
            let is_torn = |old: &&[u8; RECORD]| {
                let mut news = later.clone();
                news.any(|new| new.is_torn_over(*old, block))
            };
            if let Some(old) = olds.iter().find(is_torn) {
                block.copy_from_slice(old);
            }
        }
    }
}

/// Serves a disk on `medium` in the mode `cache`, from either engine, and cuts the power `times` times.
fn survives(medium: Medium, cache: &str, times: usize) {
    let promise = match cache {
        "writethrough" => Promise::Write,
        _ => Promise::Flush,
    };
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    for engine in ["io_uring", "threads"].into_iter().cycle().take(times) {
        let Some(storage) = Storage::new(medium, DISK) else {
            return;
        };
        let folder = TempDir::new().unwrap();
        let spec = file_spec(storage.disk(), &format!("cache={cache},engine={engine}"));
        let server = Server::pollux(&folder.path().join("disk.sock"), &["--disk", &spec]).unwrap();
        let mut storm = Storm::start(&server, random.u64(..), promise);
        // As many turns as it takes to know something, and then any moment.
        let enough = 1 + random.usize(..500);
        while storm.expected.places() < enough {
            storm.go_on();
        }
        for _ in 0..random.u64(..1000) {
            storm.go_on();
        }
        let (status, log) = server.end_by(Signal::KILL).unwrap();
        let mut survived = storage.cut_power().unwrap();
        storm.forget_torn(&mut survived);
        assert!(!status.success(), "{log}");
        if let Err(lost) = storm.expected.check(&survived) {
            panic!("{medium:?}, {spec}: {lost}\n{log}");
        }
        storm.memory.abandon();
    }
}

/// As [`survives`], of an image that is made with `options`: what is left of it has no error, and holds what was
/// promised.
fn image_survives(options: &str, cache: &str, times: usize) {
    const TABLES: u64 = 16 << 20;
    let Some(img) = QemuImg::find() else {
        return;
    };
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut leaks = 0;
    for engine in ["io_uring", "threads"].into_iter().cycle().take(times) {
        let Some(storage) = Storage::new(Medium::FileOnExt4, DISK + TABLES) else {
            return;
        };
        img.create(storage.disk(), options, DISK).unwrap();
        storage.sync().unwrap();
        let folder = TempDir::new().unwrap();
        let path = storage.disk().display();
        let spec = format!("qcow2:path={path},cache={cache},engine={engine}");
        let server = Server::pollux(&folder.path().join("disk.sock"), &["--disk", &spec]).unwrap();
        let mut storm = Storm::start(&server, random.u64(..), Promise::Flush);
        let enough = 1 + random.usize(..300);
        while storm.expected.places() < enough {
            storm.go_on();
        }
        for _ in 0..random.u64(..1000) {
            storm.go_on();
        }
        let (status, log) = server.end_by(Signal::KILL).unwrap();
        let left = folder.path().join("left.qcow2");
        fs::write(&left, storage.cut_power().unwrap()).unwrap();
        assert!(!status.success(), "{log}");
        let check = img.check(&left).unwrap();
        // 3: clusters leak, and there is no error.
        assert!(matches!(check.status.code(), Some(0 | 3)), "{check:?}");
        leaks += u32::from(check.status.code() == Some(3));
        let mut survived = img.contents(&left).unwrap();
        storm.forget_torn(&mut survived);
        if let Err(lost) = storm.expected.check(&survived) {
            panic!("{spec}, {options}: {lost}\n{log}");
        }
        storm.memory.abandon();
    }
    println!("{options}: of {times} images, {leaks} leak clusters");
}

#[test]
fn flushed_writes_to_an_image_survive_and_leave_it_without_an_error() {
    image_survives("cluster_size=4k", "writeback", 8);
    image_survives("cluster_size=64k", "none", 4);
    image_survives("cluster_size=512,lazy_refcounts=on", "writeback", 4);
}

#[test]
fn flushed_writes_to_a_file_survive() {
    survives(Medium::FileOnExt4, "writeback", 12);
    survives(Medium::FileOnExt4, "none", 12);
}

#[test]
fn flushed_writes_to_a_block_device_survive() {
    survives(Medium::BlockDevice, "writeback", 12);
    survives(Medium::BlockDevice, "none", 4);
}

#[test]
fn writes_through_the_cache_survive_without_a_flush() {
    survives(Medium::FileOnExt4, "writethrough", 8);
    survives(Medium::BlockDevice, "writethrough", 8);
}

const JOBS: u64 = 4;
const PLACES_OF_A_JOB: u64 = 512;

/// Five disks under four writers each; one server after the other is killed.
fn what_it_has_flushed_survives(system: impl Into<System>) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let disks = [
        ("vda", Medium::FileOnExt4, "cache=writeback,engine=io_uring"),
        ("vdb", Medium::FileOnExt4, "cache=none,engine=threads"),
        ("vdc", Medium::FileOnExt4, "cache=none,engine=io_uring"),
        ("vdd", Medium::BlockDevice, "cache=writeback,engine=threads"),
        (
            "vde",
            Medium::BlockDevice,
            "cache=writethrough,engine=io_uring",
        ),
    ];
    let mut guest = lab
        .guest(include_str!("../guest/cases/power_cut.sh"))
        .program(env!("CARGO_BIN_EXE_records"));
    let mut alive = Vec::new();
    for (name, medium, keys) in disks {
        let Some(storage) = Storage::new(medium, JOBS * PLACES_OF_A_JOB * RECORD as u64) else {
            return;
        };
        let export = Export::file_with(storage.disk(), keys);
        let (server, device) = lab.serve_apart(&export, name);
        guest = guest.disk(device);
        alive.push((name, server, storage));
    }
    let seed = seed();
    let guest = guest
        .set("DISKS", "vda vdb vdc vdd vde")
        .set("SEED", &seed.to_string())
        .set("JOBS", &JOBS.to_string())
        .set("PLACES", &PLACES_OF_A_JOB.to_string());
    let mut guest = lab.starts(guest);
    let mut random = Rng::with_seed(seed);
    let mut survived = Vec::new();
    for (name, server, storage) in alive {
        for _ in 0..20 + random.u64(..60) {
            lab.hears(&mut guest, &format!("covered {name} "));
        }
        server.end_by(Signal::KILL).unwrap();
        survived.push((name, storage.cut_power().unwrap()));
    }
    let console = guest.kill().unwrap();
    for (name, disk) in survived {
        let expected = Expected::told(&console, name, seed, JOBS, PLACES_OF_A_JOB);
        assert!(
            expected.places() > 10,
            "little is known of {name}: {console}"
        );
        if let Err(lost) = expected.check(&disk) {
            panic!("{name}: {lost}\n{console}");
        }
    }
}

#[test]
fn what_a_guest_has_flushed_survives() {
    what_it_has_flushed_survives(Kernel::Linux61);
}

#[test]
fn what_a_guest_with_our_driver_has_flushed_survives() {
    what_it_has_flushed_survives(Kernel::Linux61.driven_by(Driver::PolluxBlk));
}
