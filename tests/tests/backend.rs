//! The device by hand is as honest as it is told to be: independent clients drive it, so that what it
//! finds in our driver is the driver's.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::time::Duration;

use fastrand::Rng;
use pollux_tests::backend::{Backend, Calls, Conduct, Lie, Plan};
use pollux_tests::client::{Client, Shape};
use pollux_tests::frontend::{Driver, Frontend, Status, TWO_QUEUES, feature};
use pollux_tests::load::{Limits, Load};
use pollux_tests::random::seed;

/// What libblkio is made to ask for beyond the end of the disk is all that the device may complain of.
fn complains_of_nothing_else(backend: &Backend) {
    let complaints = backend.seen().complaints;
    let other: Vec<_> = (complaints.iter())
        .filter(|complaint| !complaint.contains("of a disk of"))
        .collect();
    assert!(other.is_empty(), "{other:?}");
}

#[test]
fn libblkio_reads_what_it_has_written_however_requests_end() {
    let late = Conduct::Late {
        batch: 9,
        patience: Duration::from_millis(1),
    };
    for conduct in [Conduct::Prompt, late] {
        for (calls, shape) in [
            (Calls::AsAsked, Shape::blocking(2, 64)),
            (Calls::Always, Shape::polling(2, 64)),
            (Calls::AndForNothing, Shape::blocking(2, 64)),
        ] {
            let plan = Plan {
                sectors: 1 << 15,
                queues: 2,
                calls,
                ..Plan::default()
            };
            let backend = Backend::start(plan).unwrap();
            backend.conduct(conduct);
            let (client, mut queues) = Client::connect(backend.socket(), shape).unwrap();
            let limits = Limits::of(&client, shape.queue_size, 16).unwrap();
            let random = Rng::with_seed(seed());
            let mut load = Load::new(&client, limits, &(0..1 << 24), random).unwrap();
            load.run(&mut queues[1], 300).unwrap();
            load.verify(&mut queues[1]).unwrap();
            complains_of_nothing_else(&backend);
        }
    }
}

/// A device, and a driver with a request on the way: a read of a page into slot 0 of queue 1.
fn reading(conduct: Conduct) -> (Backend, Driver) {
    let backend = Backend::start(Plan {
        queues: 2,
        ..Plan::default()
    })
    .unwrap();
    let mut driver = Driver::connect(backend.socket(), TWO_QUEUES).unwrap();
    backend.conduct(conduct);
    driver.queues[1].read(0, 0);
    driver.queues[1].publish_and_kick();
    (backend, driver)
}

#[test]
fn an_honest_request_ends_with_its_data_and_a_call_if_one_is_asked_for() {
    for without in [0, feature::EVENT_IDX] {
        let backend = Backend::start(Plan {
            without,
            queues: 2,
            ..Plan::default()
        })
        .unwrap();
        let mut driver = Driver::connect(backend.socket(), TWO_QUEUES).unwrap();
        let queue = &mut driver.queues[0];
        queue.ask_for_no_call();
        queue.write_indirect(3, 8, 7);
        queue.publish_and_kick();
        assert_eq!(queue.finish(), [3]);
        queue.ask_for_call();
        queue.read(4, 8);
        queue.publish_and_kick();
        assert_eq!(queue.finish(), [4]);
        assert_eq!((queue.status(3), queue.status(4)), (Status::Ok, Status::Ok));
        assert!(queue.page(4) == [7; 4096]);
        let seen = backend.wait_until(|seen| seen.calls >= 1);
        assert_eq!((seen.requests, seen.ended), (2, 2));
        backend.end();
    }
}

#[test]
fn what_is_held_ends_when_the_device_is_told_to_and_is_written_into_until_then() {
    let (backend, mut driver) = reading(Conduct::Held);
    let queue = &mut driver.queues[1];
    let held = backend.wait_for_held(1);
    let address = driver.memory.guest(queue.data(0));
    assert_eq!(
        (held[0].to_driver[0].address, held[0].to_driver[0].len),
        (address, 4096)
    );
    backend.scribble(Some(0x5a));
    assert!(queue.page(0) == [0x5a; 4096]);
    assert_eq!((queue.used(), queue.status(0)), (0, Status::Other(0xff)));
    backend.scribble(None);
    backend.conduct(Conduct::Prompt);
    assert_eq!(queue.finish(), [0]);
    assert!(queue.page(0) == [0; 4096]);
    backend.end();
}

#[test]
fn after_it_has_hung_up_it_writes_on() {
    let (backend, driver) = reading(Conduct::Held);
    backend.wait_for_held(1);
    backend.hang_up();
    let gone = driver.frontend.get_vring_base(1);
    assert!(gone.is_err(), "{gone:?}");
    backend.scribble(Some(0x5a));
    assert!(driver.queues[1].page(0) == [0x5a; 4096]);
    backend.let_go();
    backend.wait_until(|seen| seen.over == 1);
    let next = Driver::connect(backend.socket(), TWO_QUEUES).unwrap();
    drop(next);
    backend.end();
}

#[test]
fn each_lie_shows_in_the_ring() {
    for (lie, used, status) in [
        (Lie::IndexJump(300), 300, Status::Other(0xff)),
        (Lie::Id(7777), 1, Status::Other(0xff)),
        (Lie::IdleHead, 1, Status::Other(0xff)),
        (Lie::Twice, 2, Status::Ok),
        (Lie::Written(5), 1, Status::Ok),
        (Lie::NoStatus, 1, Status::Other(0xff)),
        (Lie::Status(9), 1, Status::Other(9)),
    ] {
        let (backend, driver) = reading(Conduct::Lie(lie));
        let queue = &driver.queues[1];
        pollux_tests::process::eventually(|| queue.used() == used, || format!("{lie:?}"));
        assert_eq!(queue.status(0), status, "{lie:?}");
        backend.end();
    }
}

#[test]
fn a_change_is_told_over_the_channel_that_was_passed() {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    let backend = Backend::start(Plan::default()).unwrap();
    let frontend = Frontend::connect(backend.socket()).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    frontend.set_backend_req_fd(theirs.as_fd()).unwrap();
    assert_eq!(frontend.get_config(0, 8).unwrap(), 2048u64.to_le_bytes());
    backend.resize(4096);
    let mut message = [0; 12];
    ours.read_exact(&mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(frontend.get_config(0, 8).unwrap(), 4096u64.to_le_bytes());
    backend.end();
}

#[test]
fn a_driver_that_breaks_the_rules_is_named() {
    let backend = Backend::start(Plan::default()).unwrap();
    let plan = pollux_tests::frontend::Plan {
        queues: 1,
        without: 0,
    };
    let mut driver = Driver::connect(backend.socket(), plan).unwrap();
    let queue = &mut driver.queues[0];
    queue.read_to(0, 0, 0xdead_0000);
    queue.read(1, 1 << 40);
    queue.publish_and_kick();
    let seen = backend.wait_until(|seen| seen.complaints.len() == 2);
    assert!(seen.complaints[0].contains("nowhere"), "{seen:?}");
    assert!(seen.complaints[1].contains("of a disk of"), "{seen:?}");
}
