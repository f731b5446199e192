//! The daemon is killed and the power fails in the same moment: what was durable is there afterwards.
//!
//! [`Storage`] forgets what was never made durable, and records tell what is missing. A client in this
//! process kills the daemon at many moments, each known to the request; a Linux guest does to it what
//! file systems and databases do.
//!
//! To see them fail: let `file/sync.rs` say that all is well without `fdatasync`, or let a write complete
//! before it is made.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::io::Write as _;

use fastrand::Rng;
use pollux_tests::guest::{Driver, Export, Kernel, Lab, System};
use pollux_tests::random::seed;
use pollux_tests::records::{Expected, RECORD};
use pollux_tests::server::Server;
use pollux_tests::storage::{Medium, Storage};
use pollux_tests::storm::{DISK, Promise, Storm};
use pollux_tests::subject::file_spec;
use rustix::process::Signal;
use tempfile::TempDir;

/// What a disk is full of at first.
const BEFORE: u8 = 0xee;

/// Serves a disk on `medium` in the mode `cache`, from either engine, and cuts the power `times` times.
fn survives(medium: Medium, cache: &str, times: usize) {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    for engine in ["io_uring", "threads"].into_iter().cycle().take(times) {
        let Some(storage) = Storage::new(medium, DISK) else {
            return;
        };
        let mut disk = File::options().write(true).open(storage.disk()).unwrap();
        let bytes = usize::try_from(DISK).unwrap();
        disk.write_all(&vec![BEFORE; bytes]).unwrap();
        disk.sync_all().unwrap();
        drop(disk);
        let folder = TempDir::new().unwrap();
        let spec = file_spec(storage.disk(), &format!("cache={cache},engine={engine}"));
        let server = Server::pollux(&folder.path().join("disk.sock"), &["--disk", &spec]).unwrap();
        let mut storm = Storm::start(&server, random.u64(..), Promise::of(cache), BEFORE);
        storm.rage(&mut random, 500);
        let (status, log) = server.end_by(Signal::KILL).unwrap();
        assert!(!status.success(), "{log}");
        if let Err(lost) = storm.ends(storage.cut_power().unwrap()) {
            panic!("{medium:?}, {spec}: {lost}\n{log}");
        }
    }
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
    survives(Medium::FileOnExt4, "writethrough", 16);
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
