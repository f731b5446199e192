//! Rings that are stopped, disabled, started again, with features left out, and memory that is
//! exchanged beneath them. The frontend is made by hand: libblkio does none of it.
//!
//! `qemu-storage-daemon` fails some of these: it serves disabled rings, refuses drivers without
//! `VERSION_1`, and now and then unmaps memory beneath a request.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use pollux_tests::busy::while_busy;
use pollux_tests::frontend::{
    Code, Driver, GuestMemory, PAGE, Plan, Queue, SLOTS, Status, TWO_QUEUES, add_one, count,
    feature,
};
use pollux_tests::process::eventually;
use pollux_tests::subject::{Disk, Program, Subject};

const SIZE: u64 = 16 << 20;
const BLOCK: u64 = PAGE as u64 / 512;

fn memory_disk() -> Subject {
    Subject::start(Disk::memory(SIZE, 2), &[]).unwrap()
}

#[test]
fn a_stopped_queue_is_drained_and_says_where_it_stopped() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    for stop in 0..50 {
        let queue = &mut driver.queues[0];
        for slot in 0..SLOTS {
            queue.write(slot, u64::from(slot) * BLOCK, stop);
        }
        queue.publish_and_kick();
        let before = queue.published().wrapping_sub(SLOTS);
        eventually(|| queue.used() != before, || "nothing has come back".into());
        // In the middle of the others:
        let base = driver.stop(0).unwrap();
        let queue = &driver.queues[0];
        assert_eq!(
            queue.used(),
            base,
            "what was taken has come back, and nothing else"
        );
        assert!(
            base.wrapping_sub(before) <= SLOTS,
            "base {base}, from {before}"
        );

        // A stopped queue is left alone, whatever the driver does; a full round of another queue, on
        // the same disk, gives the server the time to do wrong.
        queue.publish_and_kick();
        driver.queues[1].round(stop);
        assert_eq!(driver.queues[0].used(), base, "a stopped queue goes on");

        // Started again, without a kick, it serves the rest, and each request once.
        count(&driver.queues[0].kick);
        driver.start(0).unwrap();
        driver.queues[0].finish_all_ok();
    }
}

#[test]
fn a_disabled_ring_waits() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    for byte in 0..20 {
        driver
            .frontend
            .vring_state(Code::SetVringEnable, 0, 0)
            .unwrap();
        let before = driver.queues[0].used();
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish_and_kick();
        driver.queues[1].round(byte);
        assert_eq!(driver.queues[0].used(), before, "a disabled ring is served");
        driver
            .frontend
            .vring_state(Code::SetVringEnable, 0, 1)
            .unwrap();
        driver.queues[0].finish();
    }
}

/// The memory of a virtual machine with `share=off` has such rings.
#[test]
fn a_kick_of_a_ring_that_was_never_written_to_is_explained() {
    let subject = memory_disk();
    let driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    add_one(&driver.queues[0].kick);
    assert!(subject.server.says("share=on"), "{}", subject.server.log());
    let log = subject.server.log();
    let line = log.lines().find(|line| line.contains("share=on")).unwrap();
    assert!(line.contains("disk="), "{line}");
    drop(driver);
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    driver.queues[1].round(7);
    let told = subject.server.log().matches("share=on").count();
    assert_eq!(told, 1, "a ring in use is not explained");
}

#[test]
fn all_memory_is_replaced_under_load() {
    let subject = memory_disk();
    let Driver {
        frontend,
        mut queues,
        memory,
        ..
    } = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let more = [2u64 << 32, 3 << 32].map(|guest| GuestMemory::new(guest, PAGE).unwrap());
    let (first, second) = queues.split_at_mut(1);
    let queue = &mut second[0];
    let mut byte: u8 = 0;
    let busy = || {
        first[0].round(byte);
        byte = byte.wrapping_add(1);
    };
    let (rounds, ()) = while_busy(busy, || {
        let sector = SIZE / 512 - BLOCK;
        for number in 0..200 {
            let added = &more[number % 2];
            frontend
                .set_mem_table(&[added.region(), memory.region()])
                .unwrap();
            let byte = u8::try_from(number).unwrap();
            queue.write(0, sector, byte);
            queue.publish_and_kick();
            queue.finish();
            queue.read_to(1, sector, added.guest(0));
            queue.publish_and_kick();
            queue.finish();
            assert_eq!(queue.status(1), Status::Ok);
            assert_eq!(
                added.get(0, PAGE),
                [byte; PAGE],
                "into the memory that came"
            );
        }
    });
    assert!(rounds > 0, "the other queue ran meanwhile");
}

#[test]
fn a_request_into_memory_that_went_fails_and_harms_nobody() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let extra = GuestMemory::new(2 << 32, PAGE).unwrap();
    for byte in 0..20 {
        driver.frontend.add_mem_reg(&extra.region()).unwrap();
        let queue = &mut driver.queues[0];
        queue.write(0, 0, byte);
        queue.publish_and_kick();
        queue.finish();
        queue.read_to(1, 0, extra.guest(0));
        queue.publish_and_kick();
        queue.finish();
        assert_eq!(
            (queue.status(1), extra.get(0, PAGE)),
            (Status::Ok, vec![byte; PAGE])
        );
        driver.frontend.rem_mem_reg(&extra.region()).unwrap();
        extra.put(0, &[0xee; PAGE]);
        driver.queues[1].round(byte);
        assert_eq!(
            extra.get(0, PAGE),
            [0xee; PAGE],
            "memory that went is not written"
        );
    }
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!(
            "SKIP qemu-storage-daemon gives up the whole device at an address that is not there"
        );
    }
    // The device may fail the request or give up the queue, but no more than that.
    driver.queues[0].read_to(1, 0, extra.guest(0));
    driver.queues[0].publish_and_kick();
    driver.queues[1].round(77);
    assert_ne!(driver.queues[0].status(1), Status::Ok);
    drop(driver);
    let mut next = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    next.queues[0].round(78);
}

#[test]
fn the_configuration_is_the_same_however_it_is_read() {
    const LEN: u32 = 60; // up to and with `write_zeroes_may_unmap`
    let subject = memory_disk();
    let driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let whole = driver.frontend.get_config(0, LEN).unwrap();
    assert_eq!(whole[..8], (SIZE / 512).to_le_bytes(), "the capacity");
    assert_eq!(whole[34..36], [2, 0], "the number of queues");
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon ignores the offset");
    }
    for (offset, len) in [
        (0, 8),
        (8, 4),
        (20, 4),
        (33, 1),
        (34, 2),
        (4, 50),
        (36, 24),
        (57, 3),
    ] {
        let part = driver.frontend.get_config(offset, len).unwrap();
        let (from, to) = (offset as usize, (offset + len) as usize);
        assert_eq!(part, whole[from..to], "{len} bytes at {offset}");
    }
    // Beyond what there is, zeroes or a refusal, but no end of the session.
    for (offset, len) in [(0, 256), (60, 4), (0x100, 16), (250, 6)] {
        let part = driver.frontend.get_config(offset, len).unwrap();
        assert!(
            part.is_empty() || part.len() == len as usize,
            "{len} bytes at {offset}: {part:?}"
        );
    }
    assert_eq!(driver.frontend.get_config(0, LEN).unwrap(), whole);
}

#[test]
fn requests_that_cannot_be_served_say_so() {
    let subject =
        Subject::start(Disk::memory(SIZE, 2).read_only(), &["--serial", "castor"]).unwrap();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let queue = &mut driver.queues[0];
    queue.write(0, 0, 1);
    queue.bare(1, 99);
    queue.read(2, SIZE / 512);
    queue.read(3, u64::MAX);
    queue.get_id(4);
    queue.read(5, 0);
    queue.publish_and_kick();
    queue.finish();
    let statuses: Vec<Status> = (0..6).map(|slot| queue.status(slot)).collect();
    let (ok, failed) = (Status::Ok, Status::IoErr);
    assert_eq!(
        statuses,
        [failed, Status::Unsupported, failed, failed, ok, ok]
    );
    if Program::chosen() == Program::Pollux {
        assert_eq!(queue.page(4)[..7], *b"castor\0");
    }
}

fn works_without(features: u64) {
    let subject = memory_disk();
    let plan = Plan {
        without: features,
        ..TWO_QUEUES
    };
    let mut driver = Driver::connect(subject.socket(), plan).unwrap();
    let indirect = driver.features & feature::INDIRECT_DESC != 0;
    for queue in &mut driver.queues {
        for byte in 0..10 {
            queue.round(byte);
        }
        suppression_works(queue);
        if indirect {
            queue.write_indirect(0, BLOCK, 0x5a);
            queue.publish_and_kick();
            queue.finish();
            assert_eq!(queue.status(0), Status::Ok);
            queue.read(1, BLOCK);
            queue.publish_and_kick();
            queue.finish();
            assert_eq!(queue.page(1), [0x5a; PAGE]);
        }
    }
}

fn suppression_works(queue: &mut Queue) {
    queue.ask_for_no_call();
    queue.calls();
    for _ in 0..100 {
        queue.bare(0, 4);
        queue.publish_and_kick();
        queue.finish();
    }
    assert_eq!(queue.calls(), 0, "no call was asked for");
    for _ in 0..100 {
        queue.ask_for_call();
        queue.bare(0, 4);
        queue.publish_and_kick();
        queue.finish();
        eventually(|| queue.calls() > 0, || "a call was asked for".into());
    }
}

#[test]
fn all_features() {
    works_without(0);
}

#[test]
fn without_event_idx() {
    works_without(feature::EVENT_IDX);
}

#[test]
fn without_indirect_descriptors() {
    works_without(feature::INDIRECT_DESC);
}

#[test]
fn without_version_1() {
    works_without(feature::VERSION_1);
}

#[test]
fn without_any_feature_of_the_ring() {
    works_without(feature::VERSION_1 | feature::INDIRECT_DESC | feature::EVENT_IDX);
}

/// How often a device with these options asks to be kicked for one of 2000 requests, one at a time, while control
/// messages come and go on another queue of the same worker.
fn kicks_wanted(features: u64, options: &[&str]) -> u32 {
    let subject = Subject::start(Disk::memory(SIZE, 2), options).unwrap();
    let plan = Plan {
        without: features,
        ..TWO_QUEUES
    };
    let mut driver = Driver::connect(subject.socket(), plan).unwrap();
    driver.queues.iter_mut().for_each(|queue| queue.round(0));
    let mut wanted = 0;
    for request in 0..2000 {
        let queue = &mut driver.queues[0];
        queue.bare(0, 4);
        queue.publish();
        if queue.is_kick_wanted() {
            wanted += 1;
            add_one(&queue.kick);
        }
        queue.finish();
        if request % 20 == 0 {
            driver.stop(1).unwrap();
            driver.start(1).unwrap();
        }
    }
    wanted
}

/// Who always looks never sleeps, and turns kicks on at no other time: not after a completion, not for a control
/// message, not in a turn without work, of which there are many between any two of these requests.
#[test]
fn a_worker_that_is_awake_asks_for_no_kick() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon never looks at rings, and asks for kicks");
    }
    for features in [0, feature::EVENT_IDX] {
        assert_eq!(kicks_wanted(features, &["--poll", "always"]), 0);
        let between_turns = kicks_wanted(features, &["--poll", "always", "--kicks", "per-turn"]);
        // How many depends on who runs when; one that is counted at all shows that the count above can fail.
        assert!(between_turns > 100, "{between_turns}");
    }
}
