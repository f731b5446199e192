//! The table of bad manners: connections that say nothing, half of something or nonsense, too many of them, and
//! an end in the middle of anything.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;

use fastrand::Rng;
use pollux_tests::frontend::{
    Code, Frontend, GuestMemory, PAGE, Part, QUEUE_ENTRIES, Raw, Region, SLOTS, VERSION,
    new_eventfd, pair,
};
use pollux_tests::hostile::{DISK, Target, is_turned_away};
use pollux_tests::process::eventually;
use pollux_tests::random::seed;
use pollux_tests::row;
use pollux_tests::server::pollux_binary;
use rustix::process::Signal;

row!(half_a_message_and_silence, |target| {
    let message = Raw::new(Code::SetVringNum, pair(0, 256)).bytes();
    let driver = target.driver();
    let but_one = &message[..message.len() - 1];
    driver.frontend.send_bytes(but_one, &[]).unwrap();
    // The next one waits behind it, and its turn comes.
    let next = target.frontend();
    assert_ne!(next.number(Code::GetFeatures).unwrap(), 0);
    is_turned_away(target, &driver.frontend, "half a message");
});

row!(half_a_message_and_the_end, |target| {
    let event = new_eventfd().unwrap();
    let message = Raw::new(Code::SetVringKick, vec![0; 8]).bytes();
    for half in 1..message.len() {
        let frontend = target.frontend();
        frontend
            .send_bytes(&message[..half], &[event.as_fd()])
            .unwrap();
        frontend.stop_sending().unwrap();
        frontend.until_closed().unwrap();
    }
});

row!(a_thousand_connections_one_after_the_other, |target| {
    let process = target.process();
    let mut settled = 0;
    for number in 0..1000 {
        let frontend = target.frontend();
        match number % 4 {
            0 => {}
            1 => drop(frontend.number(Code::GetFeatures).unwrap()),
            2 => frontend.send_bytes(&[1, 0, 0], &[]).unwrap(),
            _ => frontend.send_bytes(&[0xff; 64], &[]).unwrap(),
        }
        drop(frontend);
        if number == 200 {
            settled = process.anonymous_memory().unwrap();
        }
    }
    let grown = process.anonymous_memory().unwrap().saturating_sub(settled);
    assert!(grown < 1 << 20, "it has grown by {grown} bytes");
});

row!(hundreds_of_connections_at_once, |target| {
    let held = target.process().holdings().unwrap();
    let threads: Vec<_> = (0..300)
        .map(|number| {
            let socket = target.socket();
            std::thread::spawn(move || {
                let frontend = Frontend::connect(&socket).unwrap();
                if number % 2 == 0 {
                    assert_ne!(frontend.number(Code::GetFeatures).unwrap(), 0);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
        let now = target.process().holdings().unwrap();
        assert_eq!(now.threads, held.threads, "one session at a time");
        assert!(now.fds < held.fds + 10, "{now:?}, from {held:?}");
    }
});

/// A frontend that shares all regions that it may does not use up what the other disks need.
#[test]
fn descriptors_are_not_used_up_by_regions() {
    let mut command = Command::new("prlimit");
    command.arg("--nofile=64:4096").arg(pollux_binary());
    let target = Target::start_by(command, 1, "");
    let memory = GuestMemory::new(0, PAGE).unwrap();
    let driver = target.driver();
    for number in 0..500u64 {
        let at = (16 << 32) + number * PAGE as u64;
        let region = memory.region();
        let region = Region {
            guest: at,
            user: at,
            ..region
        };
        driver.frontend.add_mem_reg(&region).unwrap();
    }
    target.other().queues[0].round(1);
}

/// Something sensible with some of it spoilt.
fn random_message<'fd>(random: &mut Rng, fds: &[BorrowedFd<'fd>]) -> Raw<'fd> {
    let words = random.usize(..12);
    let mut payload: Vec<u8> = (0..words)
        .flat_map(|_| {
            let word = match random.u64(..6) {
                0 => 0,
                1 => 1,
                2 => 256,
                3 => 1 << 32,
                4 => u64::MAX,
                _ => random.u64(..),
            };
            word.to_le_bytes()
        })
        .collect();
    payload.truncate(random.usize(..97));
    let mut raw = Raw::new(Code::GetFeatures, payload);
    raw.code = random.u32(..46);
    if random.u64(..20) == 0 {
        raw.flags = random.u32(..);
    } else if random.bool() {
        raw.flags = VERSION | 8;
    }
    if random.u64(..20) == 0 {
        raw.len = Some(random.u32(..200));
    }
    if random.bool() {
        let count = random.usize(..4);
        raw.fds = (0..count).map(|_| fds[random.usize(..fds.len())]).collect();
    }
    raw
}

fn random_messages(target: &Target) {
    let mut random = Rng::with_seed(seed());
    let (event, memory) = (
        new_eventfd().unwrap(),
        GuestMemory::new(8 << 32, PAGE).unwrap(),
    );
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let fds = [event.as_fd(), memory.region().fd, file.as_fd()];
    for session in 0..300 {
        let driver = (session % 2 == 0).then(|| target.driver());
        let fresh = driver.is_none().then(|| target.frontend());
        let frontend = driver
            .as_ref()
            .map(|driver| &driver.frontend)
            .or(fresh.as_ref())
            .unwrap();
        for _ in 0..random.usize(1..20) {
            if frontend
                .send_raw(&random_message(&mut random, &fds))
                .is_err()
            {
                break; // it has closed the connection
            }
        }
        frontend.stop_sending().ok();
        frontend.until_closed().unwrap();
    }
}

row!(random_messages_of_a_seed, random_messages);

fn random_rings(target: &Target) {
    let mut random = Rng::with_seed(seed());
    for _ in 0..150 {
        let mut driver = target.driver();
        for _ in 0..20 {
            let index = random.usize(..driver.queues.len());
            let queue = &mut driver.queues[index];
            for number in 0..QUEUE_ENTRIES {
                let anywhere = random.u64(..50) == 0;
                let near = (1 << 32) + random.u64(..(1 << 20));
                let address = if anywhere { random.u64(..) } else { near };
                let longest = if random.u64(..50) == 0 { 1 << 32 } else { 600 };
                let flags = if random.u64(..30) == 0 { 8 } else { 4 };
                let part = Part {
                    address,
                    len: u32::try_from(random.u64(..longest)).unwrap(),
                    flags: random.u16(..flags),
                };
                let next = random.u16(..QUEUE_ENTRIES);
                queue.write_descriptor(queue.descriptor(number), part, next);
            }
            for slot in 0..SLOTS {
                queue.begin(slot, random.u32(..14), random.u64(..DISK / 512));
            }
            for _ in 0..random.usize(1..64) {
                queue.offer(random.u16(..QUEUE_ENTRIES));
            }
            queue.publish_and_kick();
            if random.u64(..4) == 0 {
                // Stopped and started anew, broken or not.
                driver.stop(index).unwrap();
                driver.queues[index] = driver.anew(index);
                driver.start(index).unwrap();
            }
        }
    }
}

row!(random_rings_of_a_seed, random_rings);

/// A session that says nothing keeps nobody else's disk, and not the process.
#[test]
fn a_connection_without_a_word_is_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        ends_cleanly(signal, Target::frontend);
    }
}

#[test]
fn nobody_connected_is_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        ends_cleanly(signal, |_| ());
    }
}

#[test]
fn an_idle_session_is_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        ends_cleanly(signal, Target::driver);
    }
}

#[test]
fn half_a_message_is_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        for half in [1, 12, 19] {
            ends_cleanly(signal, |target| {
                let frontend = target.frontend();
                let message = Raw::new(Code::SetVringNum, pair(0, 256)).bytes();
                frontend.send_bytes(&message[..half], &[]).unwrap();
                frontend
            });
        }
    }
}

#[test]
fn many_who_wait_are_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        ends_cleanly(signal, |target| {
            (0..10).map(|_| target.frontend()).collect::<Vec<_>>()
        });
    }
}

#[test]
fn answers_that_nobody_reads_are_no_obstacle_to_an_end() {
    for signal in [Signal::TERM, Signal::INT] {
        ends_cleanly(signal, |target| {
            let frontend = target.frontend();
            frontend.send_until_full(&Raw::new(Code::GetFeatures, vec![]).bytes());
            frontend
        });
    }
}

/// It is told to end while there is still room for answers, but not for all.
#[test]
fn answers_that_nobody_will_read_are_no_obstacle_to_an_end() {
    let target = Target::start(1, "");
    let frontend = target.frontend();
    let question = Raw::new(Code::GetFeatures, vec![]);
    let (few, answer) = (50, question.bytes().len() as u64 + 8);
    (0..few).for_each(|_| frontend.send_raw(&question).unwrap());
    eventually(
        || frontend.unread().unwrap() == few * answer,
        || "not all is answered".into(),
    );
    target.server.signal(Signal::STOP).unwrap();
    frontend.send_until_full(&question.bytes());
    target.server.signal(Signal::TERM).unwrap();
    let (status, log) = target.server.end_by(Signal::CONT).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    drop(frontend);
}

/// Sent `signal` while what `state` returns stands, the process ends with 0.
fn ends_cleanly<T>(signal: Signal, state: impl FnOnce(&Target) -> T) {
    let target = Target::start(1, "");
    let standing = state(&target);
    let (socket, (status, log)) = (target.socket(), target.server.end_by(signal).unwrap());
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!socket.exists(), "the socket is left behind");
    drop(standing);
}

/// What a disk does not answer cannot be finished: the first signal says so and waits, the second does not.
#[test]
fn on_a_disk_that_hangs_the_second_signal_is_the_end() {
    for (first, second) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM)] {
        let disk = format!("disk = \"fault:hang=request,on=memory:size={DISK}\"");
        let target = Target::start(1, &disk);
        let mut driver = target.driver();
        driver.queues[0].read(0, 0);
        driver.queues[0].publish_and_kick();
        let queue = &driver.queues[0];
        eventually(
            || queue.asks_for_kick_after() == 1,
            || "it is not taken".into(),
        );
        target.server.signal(first).unwrap();
        assert!(
            target
                .server
                .says("told to end: finishing what is in flight")
        );
        let (status, log) = target.server.end_by(second).unwrap();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains("not waiting for requests in flight"), "{log}");
    }
}
