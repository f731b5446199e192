//! The server is killed and started anew, again and again, under everybody who waits in every way: nothing
//! is lost, nothing ends twice, nothing is corrupt, and nobody is told. And where that cannot be, everybody
//! is told why.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use driver_cases::asleep::asleep;
use driver_cases::losing::{DEPTH, SLEEPERS, Who, until_lost};
use driver_cases::place::Place;
use driver_cases::{Case, patiently};
use fastrand::Rng;
use pollux_disk::{Disk, Durability, Failure, Op, Queued, Request, Ticket, Unmap};
use pollux_driver::{
    CompletionMode, Driver, Hybrid as _, Lost, Options, Reconnect, Waiter, Waiting,
};
use pollux_memory::Spans;
use pollux_tests::backend::{Backend, Calls, Conduct, Lie, Plan, Silence, code};
use pollux_tests::drive::{Mode, Registered, SHARED_MODES};
use pollux_tests::peers;
use pollux_tests::process::{Process, eventually};
use pollux_tests::random::seed;
use pollux_tests::server::Server;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

/// How often each server is killed: `$POLLUX_TEST_KILLS`, or ten times.
fn kills() -> u64 {
    std::env::var("POLLUX_TEST_KILLS").map_or(10, |text| {
        text.parse().expect("POLLUX_TEST_KILLS is a number")
    })
}

/// Every way of waiting, each on a part of the disk that the longest request fits in.
fn everybody() -> Case {
    let own = [Waiting::Adaptive, Waiting::Polled].map(Mode::Own);
    Case {
        modes: [&SHARED_MODES[..], &own].concat(),
        longest: 600 << 10,
        ..Case::new(Duration::ZERO)
    }
}

/// The size of a disk for all of them.
const SIZE: u64 = 8 * 2 * MIB;

/// Kills the server, which `start` starts, at random moments under load.
fn killed_at_random(socket: &Path, start: &dyn Fn() -> Server) {
    let mut server = start();
    let driver = Driver::connect(socket, &Options::default()).unwrap();
    let mut random = Rng::with_seed(seed());
    // The last one is there until the load has ended.
    let _server = everybody().run_while(&driver, |has_failed| {
        for kill in 0..kills() {
            // Now it is at this point of its work, now at that.
            let until = counter(&driver, "polls") + random.u64(..400_000);
            let there = || counter(&driver, "polls") >= until || has_failed();
            eventually(there, || "nobody looks any more".into());
            let before = driver.reconnects();
            server.end_by(Signal::KILL).unwrap();
            server = start();
            assert!(!has_failed(), "it has failed after {kill} kills");
            // Or in the middle of being told of queues and memory.
            let back = || driver.reconnects() > before || has_failed();
            if random.bool() {
                eventually(back, || "it is not back".into());
            }
        }
        server
    });
    println!("{:?}", Disk::counters(&driver));
    assert_eq!(driver.lost(), None);
    assert!((1..=kills()).contains(&driver.reconnects()));
    assert!(counter(&driver, "replayed") > 0, "nothing was in flight");
}

fn counter(driver: &Driver, wanted: &str) -> u64 {
    let all = Disk::counters(driver);
    all.iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// How a server of one make is started.
type Start = Box<dyn Fn(&Place) -> Server + Send>;

/// Of every make that is here.
fn makes() -> Vec<Start> {
    let pollux: Start = Box::new(|place| place.pollux(&["--num-queues", "4"]));
    let daemons = [
        peers::installed("qemu-storage-daemon"),
        peers::fetched("qemu10/bin/qemu-storage-daemon"),
    ];
    let daemon =
        |program: PathBuf| -> Start { Box::new(move |place| place.storage_daemon(&program)) };
    let daemons = daemons.into_iter().flatten().map(daemon);
    std::iter::once(pollux).chain(daemons).collect()
}

#[test]
fn servers_of_every_make_are_killed_again_and_again() {
    for start in makes() {
        patiently(move || {
            let place = Place::new(SIZE);
            killed_at_random(&place.socket(), &|| start(&place));
        });
    }
}

/// A disk of Pollux over the one that is killed: those who use it notice nothing either.
#[test]
fn what_stacks_over_a_driver_survives_as_well() {
    patiently(|| {
        let (below, above) = (Place::new(SIZE), Place::new(0));
        let mut server = below.pollux(&["--num-queues", "4"]);
        let spec = format!("vhost-user:path={}", below.socket().display());
        let args = ["--disk", &spec, "--num-queues", "4"];
        let middle = Server::pollux(&above.socket(), &args).unwrap();
        let driver = Driver::connect(above.socket(), &Options::default()).unwrap();
        // As above.
        let _server = everybody().run_while(&driver, |has_failed| {
            for kill in 1..=kills().min(10) {
                server.end_by(Signal::KILL).unwrap();
                server = below.pollux(&["--num-queues", "4"]);
                let back = || middle.log().matches("the disk is back").count() as u64 >= kill;
                eventually(|| back() || has_failed(), || middle.log());
                assert!(
                    !has_failed(),
                    "it has failed after {kill} kills: {}",
                    middle.log()
                );
            }
            server
        });
        assert_eq!((driver.lost(), driver.reconnects()), (None, 0));
    });
}

/// A device by hand that has requests of every kind, of everybody, and ends none: the next one gets all of
/// them, and what came while there was none.
#[test]
fn whatever_was_in_flight_is_handed_to_the_next_server() {
    patiently(|| {
        let backend = Backend::start(Plan {
            queues: 4,
            sectors: 1 << 18,
            ..Plan::default()
        })
        .unwrap();
        backend.conduct(Conduct::Held);
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let bytes = vec![7; 3 * BLOCK];
        let (volatile, polled, call) = (
            Durability::Volatile,
            CompletionMode::Polled,
            CompletionMode::Call,
        );
        let buffer = || driver.allocate(BLOCK).unwrap();
        let flush = queue.flush(call);
        let reads = [polled, call].map(|how| queue.read(0, buffer(), how));
        let list = queue.read(0, vec![buffer(), buffer(), buffer()], call);
        let copied = queue.read(0, vec![0; BLOCK], polled);
        let written = queue.write(0, bytes.clone(), Durability::Stable, polled);
        let discarded = queue.discard(0, 8192, call);
        let zeroed = queue.write_zeroes(8192, 8192, Unmap::Allowed, volatile, polled);
        let serial = queue.serial(call);
        drop(queue.read(0, buffer(), polled));
        let mut waiter = Waiter::new(Waiting::Call).unwrap();
        let mut own = driver.channel(waiter.point()).unwrap();
        let block = buffer();
        // SAFETY: the buffer is kept until the request has ended, below.
        let spans = [unsafe { block.span() }];
        // SAFETY: the list stays until the request has ended, below.
        let into = unsafe { Spans::new(&spans) };
        let op = Op::Read { at: 512, into };
        let ticket = Ticket(1);
        assert_eq!(
            own.queue_as(Request { ticket, op }, polled),
            Queued::Pending
        );
        pollux_disk::Channel::submit(&mut own);
        backend.wait_for_held(11);

        backend.hang_up();
        // Nobody is there: all this works all the same, or will.
        let later = driver.queue(2).unwrap();
        let late = later.read(0, vec![1; 17 * BLOCK], call);
        let mapped = Registered::new(&driver, BLOCK).unwrap();
        let large = driver.allocate(70 << 20).unwrap();
        drop(driver.queue(3).unwrap().flush(call));
        let again = driver.queue(3).unwrap();
        let large = queue.read(0, large, polled);
        backend.let_go();
        // What was dropped before anybody looked is nobody's any more.
        let sleeper = std::thread::spawn(move || flush.wait());
        backend.wait_until(|seen| seen.sessions == 2 && seen.held.len() >= 10);
        backend.conduct(Conduct::Prompt);
        sleeper.join().unwrap().unwrap();
        for read in reads {
            read.wait().unwrap();
        }
        assert_eq!(list.wait().unwrap().len(), 3);
        copied.wait().unwrap();
        assert_eq!(written.wait().unwrap(), bytes);
        discarded.wait().unwrap();
        zeroed.wait().unwrap();
        assert_eq!(
            &serial.wait().unwrap()[..4],
            &pollux_tests::backend::SERIAL[..4]
        );
        let mut done = |one: pollux_disk::Completion| assert_eq!(one.result, Ok(()));
        assert_eq!(waiter.wait(&mut own, None, &mut done).unwrap(), 1);
        late.wait().unwrap();
        large.wait().unwrap();
        again.flush(call).wait().unwrap();
        drop(mapped);
        assert_eq!((driver.reconnects(), driver.lost()), (1, None));
        backend.end();
    });
}

/// Whoever has ended a request has ended it: what the server said last counts, though it is gone.
#[test]
fn what_has_ended_is_not_handed_to_the_next_server() {
    patiently(|| {
        let backend = Backend::start(Plan::default()).unwrap();
        backend.conduct(Conduct::Held);
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let all = [(); 6].map(|()| queue.flush(CompletionMode::Polled));
        backend.wait_for_held(6);
        for ended in 1..=4 {
            backend.conduct(Conduct::Next);
            backend.wait_until(|seen| seen.ended == ended);
        }
        backend.settle();
        backend.hang_up();
        backend.let_go();
        eventually(|| driver.reconnects() == 1, || "it is not back".into());
        queue.poll();
        let held = backend.wait_until(|seen| seen.sessions == 2 && seen.held.len() == 2);
        assert_eq!(held.requests, 6 + 2);
        assert_eq!(counter(&driver, "replayed"), 2);
        backend.conduct(Conduct::Prompt);
        for flush in all {
            flush.wait().unwrap();
        }
        backend.end();
    });
}

/// A server that is gone for the driver, but lives on, reads what its successor calls by as well as it can.
#[test]
fn a_server_whose_place_was_taken_cannot_read_calls_of_the_next() {
    for who in SLEEPERS {
        let plan = Plan {
            calls: Calls::Stolen,
            ..Plan::default()
        };
        let (old, next) = (Backend::start(plan), Backend::start(Plan::default()));
        let (old, next) = (old.unwrap(), next.unwrap());
        old.conduct(Conduct::Held);
        let driver = Driver::connect(old.socket(), &Options::default()).unwrap();
        let count = Arc::<AtomicU64>::default();
        let (client, counted) = (driver.clone(), Arc::clone(&count));
        let client = asleep(move || until_lost(&client, who, &counted));
        old.wait_for_held(DEPTH);
        std::fs::rename(next.socket(), old.socket()).unwrap();
        old.hang_up();
        let goes_on = || count.load(Ordering::Relaxed) > 1000;
        eventually(goes_on, || format!("{who:?}: {count:?}"));
        assert_eq!(driver.reconnects(), 1);
        next.conduct(Conduct::Lie(Lie::Id(256)));
        client.end();
    }
}

/// It has ended a request and called, but is gone before that is heard, and its successor answers nothing: what it
/// ended counts all the same.
#[test]
fn a_call_of_a_server_that_goes_at_once_is_heard() {
    patiently(|| {
        let (last, next) = (
            Backend::start(Plan::default()).unwrap(),
            Backend::start(Plan::default()).unwrap(),
        );
        last.conduct(Conduct::Held);
        next.fall_silent(code::SET_VRING_ADDR, Silence::Mute);
        let driver = Driver::connect(last.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let readiness = queue.readiness().unwrap();
        let mut flush = pin!(queue.flush(CompletionMode::Call));
        let mut context = Context::from_waker(Waker::noop());
        assert!(flush.as_mut().poll(&mut context).is_pending());
        last.wait_for_held(1);
        std::fs::rename(next.socket(), last.socket()).unwrap();
        last.conduct(Conduct::Prompt);
        last.settle();
        last.hang_up();
        next.wait_until(|seen| seen.silences == 1);
        let ended = loop {
            poll(&mut [PollFd::new(&readiness, PollFlags::IN)], None).unwrap();
            readiness.drive();
            if let Poll::Ready(ended) = flush.as_mut().poll(&mut context) {
                break ended;
            }
        };
        ended.unwrap();
    });
}

/// Nobody comes back. All are told when the time is over.
#[test]
fn a_server_that_stays_away_is_lost_when_the_time_is_over() {
    let within = Duration::from_millis(300);
    for who in [
        Who::Poller,
        Who::Sleeper,
        Who::Task,
        Who::Shared(Waiting::Call),
        Who::Own(Waiting::Adaptive),
        Who::Own(Waiting::Polled),
    ] {
        patiently(move || {
            let backend = Backend::start(Plan::default()).unwrap();
            backend.conduct(Conduct::Held);
            let options = Options::default().reconnect(Reconnect::Within(within));
            let driver = Driver::connect(backend.socket(), &options).unwrap();
            let count = AtomicU64::new(0);
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| until_lost(&driver, who, &count));
                backend.wait_for_held(DEPTH);
                let begin = Instant::now();
                // It accepts connections, and says nothing.
                backend.hang_up();
                thread.join().expect("its message is above");
                println!("{who:?}: all had ended after {:?}", begin.elapsed());
            });
            let lost = driver.lost().unwrap();
            println!("{lost}");
            assert!(matches!(lost, Lost::Away { within: told, .. } if told == within));
        });
    }
}

/// It is back, takes the disk over, and then answers no more: what is asked of it meanwhile is for the next server.
#[test]
fn a_server_that_falls_silent_as_it_comes_back_is_away() {
    patiently(|| {
        let plan = || Plan {
            queues: 3,
            ..Plan::default()
        };
        let [last, mute, next] = [(); 3].map(|()| Backend::start(plan()).unwrap());
        last.conduct(Conduct::Held);
        mute.fall_silent(code::SET_VRING_ENABLE, Silence::Mute);
        let options = Options::default().patience(Duration::from_secs(1));
        let driver = Driver::connect(last.socket(), &options).unwrap();
        let (first, second) = (driver.queue(0).unwrap(), driver.queue(1).unwrap());
        let read = first.read(0, vec![0; BLOCK], CompletionMode::Call);
        last.wait_for_held(1);
        std::fs::rename(mute.socket(), last.socket()).unwrap();
        last.hang_up();
        mute.wait_until(|seen| seen.silences == 1);
        drop(second);
        let third = driver.queue(2).unwrap();
        let flush = third.flush(CompletionMode::Call);
        assert_eq!(driver.lost(), None);
        std::fs::rename(next.socket(), last.socket()).unwrap();
        read.wait().unwrap();
        flush.wait().unwrap();
        assert_eq!((driver.lost(), driver.reconnects()), (None, 1));
    });
}

/// Its image is another program's for a while. Each session of a frontend in front of this disk opens a channel.
#[test]
fn a_queue_that_a_server_refused_is_free_at_the_next() {
    patiently(|| {
        let plan = Plan {
            queues: 3,
            ..Plan::default()
        };
        let backend = Backend::start(plan).unwrap();
        backend.fall_silent(code::SET_VRING_ENABLE, Silence::Refusal);
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let waiter = Waiter::new(Waiting::Call).unwrap();
        for round in 1..=4 {
            let Err(refused) = driver.open_channel(waiter.point()) else {
                panic!("it is refused");
            };
            assert!(refused.to_string().contains("refuses"), "{refused}");
            let back = || driver.reconnects() == round;
            eventually(back, || "it is not back".into());
        }
        assert_eq!(driver.retired(), 0);
        backend.answer();
        let queues = [(); 3].map(|()| driver.channel(waiter.point()).unwrap());
        drop(queues);
        assert_eq!((driver.lost(), driver.retired()), (None, 0));
        backend.end();
    });
}

/// It writes back what it has cached, which takes longer than an answer may.
#[test]
fn a_server_that_stops_a_queue_slowly_is_away_meanwhile() {
    patiently(|| {
        let backend = Backend::start(Plan::default()).unwrap();
        backend.fall_silent(code::GET_VRING_BASE, Silence::Mute);
        let options = Options::default().patience(Duration::from_secs(1));
        let driver = Driver::connect(backend.socket(), &options).unwrap();
        drop(driver.queue(0).unwrap());
        assert_eq!((driver.lost(), backend.seen().silences), (None, 1));
        let flush = driver.queue(0).unwrap().flush(CompletionMode::Call);
        backend.answer();
        backend.hang_up();
        backend.let_go();
        flush.wait().unwrap();
        assert_eq!((driver.lost(), driver.reconnects()), (None, 1));
        backend.end();
    });
}

/// Waits for ever, for a server and for its answers.
fn patient() -> Options {
    let for_ever = Duration::from_secs(24 * 3600);
    Options::default()
        .reconnect(Reconnect::Within(for_ever))
        .patience(for_ever)
}

/// Whoever leaves does not wait for a server that is away, nor for one that accepts and says nothing.
#[test]
fn a_driver_is_left_while_its_server_is_away() {
    patiently(|| {
        let backend = Backend::start(Plan::default()).unwrap();
        backend.conduct(Conduct::Held);
        let driver = Driver::connect(backend.socket(), &patient()).unwrap();
        let queue = driver.queue(0).unwrap();
        let read = queue.read(0, vec![0; BLOCK], CompletionMode::Call);
        backend.wait_for_held(1);
        backend.hang_up();
        // The thread that would end an attempt that lasts too long.
        let process = Process::new(std::process::id());
        let tries = || process.thread_named("driver-patience").is_ok();
        eventually(tries, || "it does not try".into());
        drop((read, queue, driver));
    });
}

/// One that lies is not asked again.
#[test]
fn a_liar_gets_no_second_chance() {
    patiently(|| {
        let backend = Backend::start(Plan::default()).unwrap();
        backend.conduct(Conduct::Held);
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let read = queue.read(0, vec![0; BLOCK], CompletionMode::Call);
        backend.wait_for_held(1);
        backend.conduct(Conduct::Lie(Lie::IndexJump(1000)));
        assert_eq!(read.wait().unwrap_err().failure, Failure::Lost);
        assert!(matches!(driver.lost(), Some(Lost::Ring { .. })));
        let seen = backend.wait_until(|seen| seen.over == 1);
        assert_eq!((seen.sessions, driver.reconnects()), (1, 0));
    });
}

/// A driver that has been handed from server to server takes up no more than at first.
#[test]
fn nothing_is_left_behind_by_servers_that_are_gone() {
    patiently(|| {
        let backend = Backend::start(Plan::default()).unwrap();
        let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let idle = || {
            let fds = std::fs::read_dir("/proc/self/fd").unwrap();
            (fds.count(), driver.retired())
        };
        let mut all = BTreeSet::new();
        for round in 0..20 {
            queue.flush(CompletionMode::Call).wait().unwrap();
            if round > 2 {
                all.insert(idle());
            }
            backend.hang_up();
            backend.let_go();
            let back = || driver.reconnects() == round + 1;
            eventually(back, || "it is not back".into());
        }
        println!("{all:?}");
        assert!(all.iter().all(|(_, retired)| *retired == 0), "{all:?}");
        let fds = || all.iter().map(|(fds, _)| *fds);
        assert!(fds().max().unwrap() - fds().min().unwrap() <= 2, "{all:?}");
        backend.end();
    });
}
