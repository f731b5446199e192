//! The device dies, or lies: whatever is in flight ends with the reason, whoever waits for it and
//! however.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use driver_cases::asleep::asleep;
use driver_cases::losing::{DEPTH, SLEEPERS, Who, holding, never, until_lost};
use driver_cases::patiently;
use pollux_disk::wait::Sleeper;
use pollux_disk::{Armed, Channel as _, Disk as _, Event, Op, Queued, Request, Ticket};
use pollux_driver::{
    Buffer, CompletionMode, ConnectError, Driver, Hybrid as _, Lost, Options, Reconnect, Waiter,
    Waiting,
};
use pollux_memory::{Region, Spans};
use pollux_tests::backend::{Backend, Calls, Conduct, Lie, Plan, Silence, code, protocol};
use pollux_tests::drive::PATIENCE;
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use pollux_tests::subject::{Disk, Subject};
use rustix::process::Signal;

const BLOCK: usize = 4096;
const SIZE: u64 = 1 << 20;

/// Everybody who can wait for a request.
const EVERYBODY: [Who; 7] = [
    Who::Poller,
    Who::Sleeper,
    Who::Task,
    Who::Shared(Waiting::Call),
    Who::Shared(Waiting::Polled),
    Who::Own(Waiting::Adaptive),
    Who::Own(Waiting::Polled),
];

/// Three threads that use one disk in that way until it is lost; `kill` is called when all are busy.
/// Returns why it was lost.
fn lose(socket: &Path, who: Who, kill: impl FnOnce() + Send + 'static) -> Lost {
    let socket = socket.to_owned();
    patiently(move || {
        let driver = Driver::connect(&socket, &never()).unwrap();
        let (told, events) = channel();
        let subscription = driver.events().subscribe(move |event| {
            let _ = told.send(event);
        });
        let counts = [(); 3].map(|()| AtomicU64::new(0));
        let (driver, counts) = (&driver, &counts);
        std::thread::scope(|scope| {
            for count in counts {
                scope.spawn(move || until_lost(driver, who, count));
            }
            let busy = || {
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) > 100)
            };
            eventually(busy, || format!("{who:?}: {counts:?}"));
            kill();
        });
        assert_eq!(events.recv().unwrap(), Event::Lost);
        drop(subscription);
        // Nothing waits for a device that is gone.
        let late = driver.queue(0);
        println!("afterwards: {:?}", late.err());
        driver.lost().expect("it is gone")
    })
}

#[test]
fn pollux_is_killed_under_load() {
    for who in EVERYBODY {
        let subject = Subject::start(Disk::memory(SIZE, 4), &[]).unwrap();
        let socket = subject.socket().to_owned();
        let why = lose(&socket, who, move || {
            subject.server.signal(Signal::KILL).unwrap();
        });
        assert_eq!(why, Lost::Closed);
    }
}

#[test]
fn qemu_storage_daemon_is_killed_under_load() {
    let Some(program) = peers::installed("qemu-storage-daemon") else {
        return;
    };
    for who in EVERYBODY {
        let folder = tempfile::TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let null = "driver=null-co,size=1048576,read-zeroes=on";
        let server = Server::qemu_storage_daemon(&program, &socket, null, 4).unwrap();
        let why = lose(&socket, who, move || server.signal(Signal::KILL).unwrap());
        assert_eq!(why, Lost::Closed);
    }
}

/// A thread that has a few requests in flight at a device that holds them, until `wrong` makes the
/// device go; then those and all later ones fail.
fn lose_held(plan: Plan, who: Who, wrong: impl FnOnce(&Backend) + Send + 'static) -> Lost {
    lose_driver(plan, who, |backend, _| wrong(backend))
}

/// As above; `wrong` sees the driver as well.
fn lose_driver(
    plan: Plan,
    who: Who,
    wrong: impl FnOnce(&Backend, &Driver) + Send + 'static,
) -> Lost {
    let backend = holding(plan);
    patiently(move || {
        let options = never().patience(Duration::from_millis(300));
        let driver = Driver::connect(backend.socket(), &options).unwrap();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| until_lost(&driver, who, &count));
            backend.wait_for_held(DEPTH);
            wrong(&backend, &driver);
        });
        let why = driver.lost().expect("it is gone");
        println!("{why}");
        why
    })
}

#[test]
fn a_used_ring_that_is_wrong_ends_everything() {
    for lie in [
        Lie::IndexJump(257),
        Lie::IndexJump(0x8000),
        Lie::Id(256),
        Lie::Id(0x1_0000),
        Lie::Id(u32::MAX),
        Lie::IdleHead,
        Lie::Twice,
        Lie::Written(1),
        Lie::Written(u32::MAX),
    ] {
        for who in EVERYBODY {
            let lies = move |backend: &Backend| backend.conduct(Conduct::Lie(lie));
            let why = lose_held(Plan::default(), who, lies);
            assert!(
                matches!(why, Lost::Ring { queue: 0, .. }),
                "{lie:?}: {why:?}"
            );
        }
    }
}

#[test]
fn a_socket_that_is_closed_ends_everything() {
    for who in EVERYBODY {
        let why = lose_held(Plan::default(), who, Backend::hang_up);
        assert_eq!(why, Lost::Closed);
    }
}

/// The eventfd of the kicks is the server's as well.
#[test]
fn a_server_that_blocks_kicks_holds_nobody() {
    for who in EVERYBODY {
        let why = lose_driver(Plan::default(), who, move |backend, driver| {
            backend.block_kicks();
            let kicks = || {
                let counters = driver.counters();
                counters
                    .iter()
                    .find(|(name, _)| *name == "kicks")
                    .unwrap()
                    .1
            };
            let before = kicks();
            // One ends, and the next is kicked for.
            backend.conduct(Conduct::Next);
            eventually(|| kicks() > before, || format!("{who:?}: no kick"));
            backend.hang_up();
        });
        assert_eq!(why, Lost::Closed, "{who:?}");
    }
}

/// The eventfd of the calls is the server's as well: to read it first, or to fill it, must not keep a sleeper from
/// hearing of the loss.
fn a_sleeper_hears_of_the_loss(who: Who, plan: Plan, hinders: impl FnOnce(&Backend)) {
    let backend = holding(plan);
    let driver = Driver::connect(backend.socket(), &never()).unwrap();
    let sleeper = asleep(move || until_lost(&driver, who, &AtomicU64::new(0)));
    backend.wait_for_held(DEPTH);
    hinders(&backend);
    sleeper.sleeps_on();
    backend.hang_up();
    sleeper.end();
}

/// Each several times, as the reader does not win every race.
#[test]
fn a_server_that_reads_the_calls_itself_ends_everything_as_it_goes() {
    for who in [SLEEPERS; 6].into_iter().flatten() {
        let plan = Plan {
            calls: Calls::Stolen,
            ..Plan::default()
        };
        a_sleeper_hears_of_the_loss(who, plan, |_| ());
    }
}

#[test]
fn a_server_that_fills_what_it_calls_by_ends_everything_as_it_goes() {
    for who in SLEEPERS {
        a_sleeper_hears_of_the_loss(who, Plan::default(), Backend::fill_calls);
    }
}

/// An owner asks for a call, reads the counters, and sleeps: the call that tells of the loss still wakes it.
#[test]
fn counters_read_before_a_sleep_do_not_lose_the_wake_up() {
    let backend = holding(Plan::default());
    patiently(move || {
        let driver = Driver::connect(backend.socket(), &never()).unwrap();
        let (told, events) = channel();
        let subscription = driver.events().subscribe(move |event| {
            let _ = told.send(event);
        });
        let mut sleeper = Sleeper::new().unwrap();
        let mut queue = driver.channel(sleeper.point()).unwrap();
        let buffer = driver.allocate(BLOCK).unwrap();
        // SAFETY: buffer and list are kept until the request has ended, below.
        let list = [unsafe { buffer.span() }];
        let op = Op::Read {
            at: 0,
            // SAFETY: as above.
            into: unsafe { Spans::new(&list) },
        };
        let ticket = Ticket(7);
        assert_eq!(queue.queue(Request { ticket, op }), Queued::Pending);
        queue.submit();
        backend.wait_for_held(1);
        sleeper.arm();
        assert_eq!(queue.arm(), Armed::Idle);
        backend.hang_up();
        assert_eq!(events.recv().unwrap(), Event::Lost);
        drop(subscription);
        for _ in 0..3 {
            queue.counters();
        }
        sleeper.sleep(None, |_| ()).unwrap();
        let mut ended = Vec::new();
        queue.reap(&mut |done| ended.push((done.ticket, done.result.is_err())));
        assert_eq!(ended, [(ticket, true)]);
    });
}

/// A server that takes its memory all anew is told nothing of it while requests are in flight: it would lose them.
#[test]
fn memory_is_taken_back_beside_requests_in_flight() {
    let backend = holding(Plan {
        without_protocol: protocol::CONFIGURE_MEM_SLOTS,
        ..Plan::default()
    });
    let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
    let file = pollux_memory::memfd("pollux-test-own", BLOCK).unwrap();
    let region = Arc::new(Region::map(file, 0, 0, 0, BLOCK as u64).unwrap());
    driver.map(&region).unwrap();
    let queue = driver.queue(0).unwrap();
    let read = queue.read(0, driver.allocate(BLOCK).unwrap(), CompletionMode::Call);
    backend.wait_for_held(1);
    driver.unmap(&region);
    backend.conduct(Conduct::Prompt);
    read.wait().unwrap();
    assert_eq!(driver.lost(), None);
    drop((queue, driver));
    backend.end();
}

/// The configuration changes, and then the device does not say to what.
#[test]
fn a_device_that_falls_silent_ends_everything() {
    for silence in [Silence::Mute, Silence::Half, Silence::HangUp] {
        for who in [Who::Poller, Who::Sleeper] {
            let why = lose_held(Plan::default(), who, move |backend| {
                backend.fall_silent(code::GET_CONFIG, silence);
                backend.resize(4096);
            });
            match silence {
                Silence::Mute | Silence::Half => {
                    assert!(matches!(why, Lost::Silent { .. }), "{why:?}");
                }
                Silence::HangUp | Silence::Refusal => assert_eq!(why, Lost::Closed),
            }
        }
    }
}

/// Only the request that it concerns fails: what the device says otherwise is as it should be.
#[test]
fn a_status_that_is_missing_or_nonsense_fails_its_request_alone() {
    for lie in [Lie::NoStatus, Lie::Status(3), Lie::Status(0xff)] {
        let backend = holding(Plan::default());
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        for _ in 0..3 {
            let read = || queue.read(0, driver.allocate(BLOCK).unwrap(), CompletionMode::Call);
            let (bad, good) = (read(), read());
            backend.wait_for_held(2);
            backend.conduct(Conduct::Lie(lie));
            let error = bad.wait().expect_err("it has no status");
            println!("{lie:?}: {error}");
            backend.conduct(Conduct::Prompt);
            good.wait().unwrap();
            assert_eq!(driver.lost(), None);
            backend.conduct(Conduct::Held);
        }
        backend.end();
    }
}

/// While it is brought up: the caller is told what is missing, as soon as its patience is over.
#[test]
fn a_device_that_does_not_answer_while_it_is_brought_up_is_an_error() {
    let needed = [
        code::GET_FEATURES,
        code::GET_PROTOCOL_FEATURES,
        code::GET_CONFIG,
        code::SET_FEATURES,
        code::SET_VRING_NUM,
        code::SET_VRING_KICK,
        code::SET_VRING_ENABLE,
        code::ADD_MEM_REG,
    ];
    for code in needed {
        for silence in [Silence::Mute, Silence::Half, Silence::HangUp] {
            patiently(move || {
                let backend = Backend::start(Plan::default()).unwrap();
                backend.fall_silent(code, silence);
                let options = never().patience(Duration::from_millis(100));
                let error: Box<dyn std::error::Error> =
                    match Driver::connect(backend.socket(), &options) {
                        Err(error) => error.into(),
                        Ok(driver) => match driver.queue(0) {
                            Err(error) => error.into(),
                            Ok(_) => panic!("message {code} was not answered: {silence:?}"),
                        },
                    };
                let mut told = error.to_string();
                let mut source = error.source();
                while let Some(error) = source {
                    told = format!("{told}: {error}");
                    source = error.source();
                }
                println!("{code} {silence:?}: {told}");
            });
        }
    }
}

/// It is waited for where it has been there: not one that takes no memory to begin with.
#[test]
fn a_device_that_goes_while_it_is_brought_up_is_an_error_though_servers_may_come_back() {
    for silence in [Silence::Mute, Silence::HangUp] {
        patiently(move || {
            let backend = Backend::start(Plan::default()).unwrap();
            backend.fall_silent(code::ADD_MEM_REG, silence);
            let options = Options::default().reconnect(Reconnect::Always);
            let options = options.patience(Duration::from_millis(100));
            let error = Driver::connect(backend.socket(), &options).unwrap_err();
            assert!(matches!(error, ConnectError::Lost { .. }), "{error:?}");
        });
    }
}

/// It is left with a queue that it does not stop: whoever leaves does not wait for ever.
#[test]
fn a_device_that_does_not_stop_a_queue_is_left_all_the_same() {
    for silence in [Silence::Mute, Silence::Half, Silence::HangUp] {
        patiently(move || {
            let backend = holding(Plan::default());
            let options = never().patience(Duration::from_millis(100));
            let driver = Driver::connect(backend.socket(), &options).unwrap();
            let queue = driver.queue(0).unwrap();
            let read = queue.read(0, driver.allocate(BLOCK).unwrap(), CompletionMode::Polled);
            backend.wait_for_held(1);
            backend.fall_silent(code::GET_VRING_BASE, silence);
            drop(read);
            drop(queue);
            assert!(driver.lost().is_some());
            drop(driver);
        });
    }
}

/// Whatever it says of itself, the disk is one that can be used, or there is none.
#[test]
fn nonsense_in_the_configuration_is_refused_or_made_safe() {
    let word = |at: usize, value: u32| (at, value.to_le_bytes().to_vec());
    for (at, bytes) in [
        (0, u64::MAX.to_le_bytes().to_vec()),
        (0, vec![0; 8]),
        (0, 2047u64.to_le_bytes().to_vec()),
        word(8, 0),
        word(8, 1),
        word(8, u32::MAX),
        word(12, 0),
        word(12, u32::MAX),
        word(20, 0),
        word(20, 3),
        word(20, 256),
        word(20, 1 << 31),
        word(24, u32::MAX),
        word(36, 0),
        word(44, 0),
        word(44, 3),
        (34, vec![0; 2]),
        (34, vec![0xff; 2]),
    ] {
        patiently(move || {
            let what = format!("{bytes:?} at {at}");
            let backend = Backend::start(Plan {
                config: vec![(at, bytes)],
                ..Plan::default()
            })
            .unwrap();
            let driver = match Driver::connect(backend.socket(), &Options::default()) {
                Err(refusal) => return println!("{what}: {refusal}"),
                Ok(driver) => driver,
            };
            let geometry = driver.geometry();
            println!("{what}: {geometry:?}");
            assert!(geometry.block.is_power_of_two() && geometry.block >= 512);
            assert!(geometry.bytes.is_multiple_of(geometry.block.into()));
            let queue = driver.queue(0).unwrap();
            let buffer = driver.allocate(BLOCK).unwrap();
            let read = queue.read(0, buffer, CompletionMode::Call).wait();
            println!("{what}: {:?}", read.map(drop));
        });
    }
}

#[test]
fn a_change_of_size_reaches_the_caller() {
    let backend = Backend::start(Plan::default()).unwrap();
    let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
    assert_eq!(backend.seen().deaf_reads, 0);
    let (told, events) = channel();
    let _subscription = driver.events().subscribe(move |event| {
        let _ = told.send(event);
    });
    let queue = driver.queue(0).unwrap();
    let at_the_end = |sectors: u64| {
        let buffer = driver.allocate(512).unwrap();
        queue
            .read(512 * (sectors - 1), buffer, CompletionMode::Call)
            .wait()
    };
    for sectors in [4096, 1024, 2048] {
        backend.resize(sectors);
        assert_eq!(events.recv().unwrap(), Event::Changed);
        assert_eq!(driver.geometry().bytes, 512 * sectors);
        at_the_end(sectors).unwrap();
        assert!(at_the_end(sectors + 1).is_err());
    }
    backend.end();
}

/// What a request may hold is said once; a device that says something else later is not believed, neither
/// for requests that are cut already and wait for room nor for those that come after them.
#[test]
fn limits_that_change_change_nothing() {
    const SIZE_MAX: usize = 8;
    const SEG_MAX: usize = 12;
    for queue_size in [4, 256] {
        for (at, first, second) in [
            (SEG_MAX, 2, 126),
            (SEG_MAX, 126, 1),
            (SIZE_MAX, 4096, 1 << 20),
            (SIZE_MAX, 1 << 20, 512),
            (SIZE_MAX, 1 << 20, 100),
        ] {
            patiently(move || {
                let backend = holding(Plan {
                    config: vec![(at, u32::to_le_bytes(first).to_vec())],
                    ..Plan::default()
                });
                let options = Options::default().queue_size(queue_size);
                let driver = Driver::connect(backend.socket(), &options).unwrap();
                let (told, events) = channel();
                let _subscription = driver.events().subscribe(move |event| {
                    let _ = told.send(event);
                });
                let mut waiter = Waiter::new(Waiting::Adaptive).unwrap();
                let mut channel = driver.channel(waiter.point()).unwrap();
                let buffers: Vec<_> = (0..40)
                    .map(|_| driver.allocate(3 * BLOCK).unwrap())
                    .collect();
                // SAFETY: the buffers are kept until all requests have ended, below.
                let span = |buffer: &Buffer| unsafe { buffer.span() };
                let list: Vec<_> = buffers.iter().map(span).collect();
                // SAFETY: the list stays until all requests have ended, below.
                let into = unsafe { Spans::new(&list) };
                let request = Request {
                    ticket: Ticket(1),
                    op: Op::Read { at: 0, into },
                };
                let mut left = 0;
                for word in [first, second, first, second] {
                    backend.reconfigure(at, word);
                    assert_eq!(events.recv().unwrap(), Event::Changed);
                    for _ in 0..8 {
                        assert_eq!(channel.queue(request), Queued::Pending);
                        channel.submit();
                        left += 1;
                    }
                }
                backend.conduct(Conduct::Prompt);
                while left > 0 {
                    let mut done = |one: pollux_disk::Completion| assert_eq!(one.result, Ok(()));
                    let ended = waiter
                        .wait(&mut channel, Some(PATIENCE), &mut done)
                        .unwrap();
                    assert!(ended > 0, "{left} requests never end");
                    left -= ended;
                }
                assert_eq!(driver.lost(), None);
                backend.end();
            });
        }
    }
}

/// Queues of every size, sensible or not, are made or refused.
#[test]
fn a_queue_size_that_cannot_be_is_refused() {
    let backend = Backend::start(Plan::default()).unwrap();
    for queue_size in [0, 1, 2, 3, 6, 1000, 4, 8, 1024, 1 << 15, u16::MAX] {
        let options = Options::default().queue_size(queue_size);
        let used = Driver::connect(backend.socket(), &options).map_err(|error| error.to_string());
        let used = used.and_then(|driver| {
            let queue = driver.queue(0).map_err(|error| error.to_string())?;
            let read = queue.read(0, vec![0; BLOCK], CompletionMode::Call).wait();
            read.map(drop).map_err(|error| error.to_string())
        });
        println!("{queue_size}: {used:?}");
        let sensible = queue_size.is_power_of_two() && queue_size >= 4;
        assert_eq!(used.is_ok(), sensible, "{queue_size}: {used:?}");
    }
    backend.end();
}

#[test]
fn a_server_that_takes_no_queue_as_large_is_told_by_its_option() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &["--queue-size", "128"]).unwrap();
    let has_queue = |options: &Options| {
        let driver = Driver::connect(subject.socket(), options).map_err(|error| error.to_string());
        let queue = driver.and_then(|driver| driver.queue(0).map_err(|error| error.to_string()));
        queue.map(drop)
    };
    let options = Options::default();
    let refused = has_queue(&options).unwrap_err();
    assert!(refused.contains("Options::queue_size"), "{refused}");
    has_queue(&options.queue_size(128)).unwrap();
}
