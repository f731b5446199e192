//! That what the other tests verify with does find a disk that stores nothing, and one that loses writes: by each way
//! of waiting, and into each kind of memory.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use driver_cases::Case;
use fastrand::Rng;
use pollux_driver::Waiting;
use pollux_tests::client::{Client, Shape};
use pollux_tests::drive::{Mode, SHARED_MODES};
use pollux_tests::load::{Limits, Load};
use pollux_tests::random::seed;
use pollux_tests::server::Server;
use tempfile::TempDir;

const SIZE: u64 = 8 << 20;
const DISKS: [&str; 3] = [
    "null:size=8M",
    "fault:torn=0,then=ok,on=memory:size=8M",
    "fault:torn=0,then=ok,chance=5%,on=memory:size=8M",
];

/// Serves such disks to `load`, which must not end well, and one that stores everything.
fn is_caught(what: &str, load: impl Fn(&Path)) {
    let is_content = |disk: &str| {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let _server = Server::pollux(&socket, &["--disk", disk]).unwrap();
        catch_unwind(AssertUnwindSafe(|| load(&socket))).is_ok()
    };
    assert!(is_content("memory:size=8M"), "{what}");
    for disk in DISKS {
        assert!(!is_content(disk), "{what} is content with {disk}");
    }
}

#[test]
fn our_driver_finds_what_a_disk_has_not_stored() {
    let own = [Mode::Own(Waiting::Polled), Mode::Own(Waiting::Call)];
    for mode in SHARED_MODES.into_iter().chain(own) {
        let case = Case {
            modes: vec![mode],
            longest: 64 << 10,
            ..Case::new(Duration::from_millis(500))
        };
        is_caught(&format!("{mode:?}"), |socket| case.run(socket));
    }
}

#[test]
fn libblkio_finds_what_a_disk_has_not_stored() {
    is_caught("libblkio", |socket| {
        let (client, mut queues) = Client::connect(socket, Shape::blocking(1, 64)).unwrap();
        let limits = Limits::of(&client, 64, 8).unwrap();
        let random = Rng::with_seed(seed());
        let mut load = Load::new(&client, limits, &(0..SIZE), random).unwrap();
        load.run(&mut queues[0], 500).unwrap();
        load.verify(&mut queues[0]).unwrap();
    });
}
