//! A server that comes back with another disk: one that is the same for its driver, or not.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::fs::OpenOptions;
use std::sync::mpsc::channel;

use driver_cases::patiently;
use driver_cases::place::Place;
use pollux_disk::{Disk, Durability, Event, Failure};
use pollux_driver::{CompletionMode, Difference, Driver, Lost, Options};
use pollux_tests::server::Server;

const MIB: u64 = 1 << 20;

/// The server comes back with another disk, as `change` makes it.
fn changed(change: impl FnOnce(&Place) -> Server) -> (Driver, Result<(), Failure>, Event) {
    let place = Place::new(MIB);
    let server = place.pollux(&["--num-queues", "2"]);
    let driver = Driver::connect(place.socket(), &Options::default()).unwrap();
    let (told, events) = channel();
    let subscription = driver.events().subscribe(move |event| {
        let _ = told.send(event);
    });
    let queue = driver.queue(0).unwrap();
    drop(server);
    let write = queue.write(0, vec![1; 512], Durability::Volatile, CompletionMode::Call);
    let _server = change(&place);
    let ended = write.wait().map(drop).map_err(Failure::from);
    // It is told after those who sleep were woken.
    let event = events.recv().unwrap();
    drop(subscription);
    (driver, ended, event)
}

fn resized(place: &Place, bytes: u64) {
    let image = OpenOptions::new().write(true).open(place.image()).unwrap();
    image.set_len(bytes).unwrap();
}

#[test]
fn a_disk_that_is_not_the_same_any_more_is_lost_and_told_apart() {
    let queues = ["--num-queues", "2"];
    patiently(move || {
        let differs = |change: &dyn Fn(&Place) -> Server| {
            let (driver, ended, event) = changed(change);
            assert_eq!((ended, event), (Err(Failure::Lost), Event::Lost));
            let lost = driver.lost().unwrap();
            println!("{lost}");
            match lost {
                Lost::Changed { difference } => difference,
                other => panic!("{other}"),
            }
        };
        let smaller = differs(&|place| {
            resized(place, MIB / 2);
            place.pollux(&queues)
        });
        let (before, now) = (MIB, MIB / 2);
        assert_eq!(smaller, Difference::Smaller { before, now });
        let read_only = differs(&|place| place.pollux(&["--num-queues", "2", "--read-only"]));
        assert_eq!(read_only, Difference::ReadOnly);
        let fewer = differs(&|place| place.pollux(&["--num-queues", "1"]));
        let (before, now) = (2, 1);
        assert_eq!(fewer, Difference::Queues { before, now });
        let blocks = differs(&|place| place.pollux(&["--num-queues", "2", "--block-size", "4096"]));
        let (before, now) = (512, 4096);
        assert_eq!(blocks, Difference::Block { before, now });
    });
}

#[test]
fn a_disk_that_has_grown_is_the_same_and_says_so() {
    patiently(|| {
        let (driver, ended, event) = changed(|place| {
            resized(place, 2 * MIB);
            place.pollux(&["--num-queues", "2"])
        });
        assert_eq!((ended, driver.lost()), (Ok(()), None));
        assert_eq!(event, Event::Changed);
        assert_eq!(driver.geometry().bytes, 2 * MIB);
    });
}
