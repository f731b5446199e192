//! Our driver against a model: what is written is what is read, whoever serves, however many share a
//! queue, and whichever way they wait.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::path::Path;
use std::time::Duration;

use driver_cases::{Case, patiently, registered};
use pollux_disk::Durability;
use pollux_driver::{Buffer, CompletionMode, Driver, Experiment, Mixed, Options, Queue, Waiting};
use pollux_tests::backend::{self, Backend, Calls, Conduct, Plan, protocol};
use pollux_tests::drive::{Mode, SHARED_MODES, run_tasks};
use pollux_tests::peers;
use pollux_tests::server::Server;
use pollux_tests::subject::{Disk, Subject};

const MIB: u64 = 1 << 20;
/// Eight threads, each with a part that the longest request fits in.
const SIZE: u64 = 8 * 8 * MIB;

/// A load of `make test`, and one of the full set.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(20);

/// All modes, on one queue to four, by one thread to eight, six loads that take `each`.
fn every_way(socket: &Path, each: Duration) {
    let own = [Mode::Own(Waiting::Adaptive), Mode::Own(Waiting::Call)];
    for (queues, modes) in [
        (1, vec![Mode::Wait]),
        (1, vec![Mode::Own(Waiting::Polled)]),
        (
            1,
            [&SHARED_MODES[..], &[Mode::Wait, Mode::Futures]].concat(),
        ),
        (2, SHARED_MODES[..4].to_vec()),
        (3, [&SHARED_MODES[..], &own[..1]].concat()),
        (4, [&SHARED_MODES[..], &own].concat()),
    ] {
        let case = Case {
            options: Options::default().queues(queues),
            modes,
            ..Case::new(each)
        };
        case.run(socket);
    }
}

fn pollux(each: Duration) {
    let subject = Subject::start(Disk::memory(SIZE, 4), &[]).unwrap();
    patiently(move || every_way(subject.socket(), each));
}

#[test]
fn pollux_serves_every_way_of_waiting() {
    pollux(SHORT);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn pollux_serves_every_way_of_waiting_for_minutes() {
    pollux(LONG);
}

fn storage_daemon(program: &Path, each: Duration) {
    let folder = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let blockdev = format!("driver=file,filename={},discard=unmap", image.display());
    let socket = folder.path().join("disk.sock");
    let server = Server::qemu_storage_daemon(program, &socket, &blockdev, 4).unwrap();
    patiently(move || every_way(server.socket(), each));
}

#[test]
fn qemu_storage_daemon_7_serves_every_way_of_waiting() {
    if let Some(program) = peers::installed("qemu-storage-daemon") {
        storage_daemon(&program, SHORT);
    }
}

#[test]
fn qemu_storage_daemon_10_serves_every_way_of_waiting() {
    if let Some(program) = peers::fetched("qemu10/bin/qemu-storage-daemon") {
        storage_daemon(&program, SHORT);
    }
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn qemu_storage_daemon_10_serves_every_way_of_waiting_for_minutes() {
    if let Some(program) = peers::fetched("qemu10/bin/qemu-storage-daemon") {
        storage_daemon(&program, LONG);
    }
}

/// By hand, strict, and with as little as a server may offer: neither suppression by index nor indirect
/// tables, memory in one table, nothing acknowledged, and two segments of 16 KiB in a request.
fn poor() -> Plan {
    Plan {
        sectors: 1 << 15,
        queues: 2,
        size_max: 16 << 10,
        seg_max: 2,
        range_sectors: 100,
        without: backend::feature::EVENT_IDX | backend::feature::INDIRECT_DESC,
        without_protocol: protocol::REPLY_ACK
            | protocol::CONFIGURE_MEM_SLOTS
            | protocol::BACKEND_REQ,
        ..Plan::default()
    }
}

/// In any order and late, with calls that nobody has asked for.
const LATE: Conduct = Conduct::Late {
    batch: 5,
    patience: Duration::from_micros(300),
};

/// Every way of waiting on a device that is strict about what we do.
fn by_hand(plan: Plan, conduct: Conduct, options: Options) {
    let backend = Backend::start(plan).unwrap();
    backend.conduct(conduct);
    let socket = backend.socket().to_owned();
    patiently(move || {
        let case = Case {
            options,
            modes: SHARED_MODES.to_vec(),
            longest: 600 << 10,
            ..Case::new(Duration::from_secs(2))
        };
        case.run(&socket);
    });
    backend.end();
}

#[test]
fn a_rich_and_a_poor_device_find_nothing_wrong() {
    let rich = Plan {
        sectors: 1 << 15,
        queues: 2,
        ..Plan::default()
    };
    for plan in [rich, poor()] {
        for conduct in [Conduct::Prompt, LATE] {
            by_hand(plan.clone(), conduct, Options::default());
        }
    }
}

#[test]
fn a_device_without_any_feature_but_the_needed_ones_is_driven() {
    use backend::feature::{
        BLK_SIZE, CONFIG_WCE, DISCARD, FLUSH, MQ, SEG_MAX, SIZE_MAX, TOPOLOGY, WRITE_ZEROES,
    };
    let optional =
        BLK_SIZE | CONFIG_WCE | DISCARD | FLUSH | MQ | SEG_MAX | SIZE_MAX | TOPOLOGY | WRITE_ZEROES;
    let bare = Plan {
        queues: 1,
        without: poor().without | optional,
        without_protocol: poor().without_protocol | protocol::MQ,
        ..poor()
    };
    by_hand(bare, Conduct::Prompt, Options::default());
}

#[test]
fn blocks_of_4096_bytes() {
    let plan = Plan {
        sectors: 1 << 15,
        block: 4096,
        size_max: 5000,
        ..Plan::default()
    };
    by_hand(plan, Conduct::Prompt, Options::default());
}

/// As small as queues may be: with indirect tables a chain takes one entry, else header, data, status.
#[test]
fn the_smallest_queues_carry_everything() {
    let indirect = backend::feature::INDIRECT_DESC;
    for (queue_size, without) in [(4, 0), (4, indirect), (8, indirect)] {
        for mixed in [
            Mixed::WhileNeeded,
            Mixed::SuspendedFor(Duration::from_millis(1)),
        ] {
            let options = Options::default()
                .queue_size(queue_size)
                .experiment(Experiment {
                    mixed,
                    without,
                    ..Experiment::default()
                });
            let plan = Plan {
                sectors: 1 << 15,
                ..Plan::default()
            };
            by_hand(plan, Conduct::Prompt, options);
        }
    }
}

/// Neither policy makes anything of calls that nobody needs, at any rate.
#[test]
fn stray_calls_are_harmless() {
    for calls in [Calls::Always, Calls::AndForNothing] {
        for mixed in [
            Mixed::WhileNeeded,
            Mixed::SuspendedFor(Duration::from_millis(1)),
        ] {
            let plan = Plan {
                sectors: 1 << 15,
                queues: 2,
                calls,
                ..Plan::default()
            };
            let options = Options::default().experiment(Experiment {
                mixed,
                ..Experiment::default()
            });
            by_hand(plan, LATE, options);
        }
    }
}

/// A server that sleeps whenever it can is kicked for every batch: no kick is lost.
#[test]
fn a_server_that_sleeps_whenever_it_can_is_woken() {
    let sleepy = ["--poll", "never", "--kicks", "per-turn"];
    let subject = Subject::start(Disk::memory(SIZE, 2), &sleepy).unwrap();
    patiently(move || {
        let case = Case {
            options: Options::default().queues(2),
            modes: SHARED_MODES.to_vec(),
            ..Case::new(Duration::from_secs(4))
        };
        case.run(subject.socket());
    });
}

const BLOCK: usize = 4096;

/// A piece of registered memory that a request can be told by.
fn piece(memory: &mut Buffer) -> Buffer {
    memory.split_off(memory.len() - BLOCK)
}

/// Waits in each of the three ways.
const WAYS: [fn(&Queue, Buffer) -> Buffer; 3] = [
    |queue, into| {
        let mut read = queue.read(0, into, CompletionMode::Polled);
        while !read.is_done() {
            std::hint::spin_loop();
        }
        read.wait().unwrap()
    },
    |queue, into| queue.read(0, into, CompletionMode::Call).wait().unwrap(),
    |queue, into| {
        let read = queue.read(0, into, CompletionMode::Call);
        let (tell, told) = std::sync::mpsc::channel();
        run_tasks(queue, [async { tell.send(read.await.unwrap()).unwrap() }]).unwrap();
        told.recv().unwrap()
    },
];

/// The device reads and writes the caller's own memory in place, and a request has it until it has ended:
/// though its future is dropped.
#[test]
fn registered_memory_is_used_in_place_and_stays_with_its_request() {
    for plan in [Plan::default(), poor()] {
        let backend = Backend::start(plan).unwrap();
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let mut memory = registered(&driver, 8 * BLOCK);
        let first = memory.addresses().start as u64;
        let queue = driver.queue(0).unwrap();
        let mut data = piece(&mut memory);
        data.write(0, &[0x5a; BLOCK]);
        let write = queue.write(0, data, Durability::Volatile, CompletionMode::Call);
        drop(write.wait().unwrap());
        for way in WAYS {
            let mut found = [0; BLOCK];
            way(&queue, piece(&mut memory)).read(0, &mut found);
            assert!(found == [0x5a; BLOCK]);
        }

        backend.conduct(Conduct::Held);
        let last = piece(&mut memory);
        let place = last.addresses().start as u64;
        assert_eq!(place, first + 3 * BLOCK as u64);
        drop(queue.read(0, last, CompletionMode::Polled));
        let held = backend.wait_for_held(1);
        let parts: Vec<_> = held[0].to_driver.iter().map(|part| part.address).collect();
        assert!(parts.contains(&place), "{parts:x?}, and not {place:x}");
        let memory = driver.unregister(memory).unwrap_err();
        backend.conduct(Conduct::Prompt);
        backend.wait_until(|seen| seen.ended == 5);
        // Counted before it is published.
        backend.settle();
        let ended = || queue.poll() > 0;
        pollux_tests::process::eventually(ended, || "the read does not end".into());
        drop(queue);
        driver.unregister(memory).expect("it is all that is left");
        drop(driver);
        backend.end();
    }
}

/// What it takes back is its own, and whole.
#[test]
fn only_the_last_part_of_what_was_registered_there_is_taken_back() {
    let [backend, other] = [(); 2].map(|()| Backend::start(Plan::default()).unwrap());
    let [driver, elsewhere] = [&backend, &other]
        .map(|backend| Driver::connect(backend.socket(), &Options::default()).unwrap());
    let memory = registered(&driver, 8 * BLOCK);
    let memory = elsewhere.unregister(memory).unwrap_err();
    let pool = driver.allocate(BLOCK).unwrap();
    driver.unregister(pool).unwrap_err();
    driver.unregister(memory).unwrap();
    drop((driver, elsewhere));
    backend.end();
    other.end();
}
