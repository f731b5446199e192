//! The log of dirty pages: what migrates a guest relies on it alone to learn what the device wrote.
//!
//! `qemu-storage-daemon` fails some of these: it logs the used ring whether or not it was asked to, and takes
//! logs that are too short.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

use pollux_tests::busy::while_busy;
use pollux_tests::frontend::{
    Code, DirtyLog, Driver, Frontend, GuestMemory, Logs, PAGE, Plan, Queue, SLOTS, Status, feature,
    page,
};
use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use pollux_tests::subject::{Disk, Subject};

const SIZE: u64 = 16 << 20;
const BLOCK: u64 = PAGE as u64 / 512;
/// Where no memory of these tests reaches.
const END: u64 = 3 << 32;

type Pages = BTreeSet<u64>;

/// A driver whose device logs.
struct Rig {
    driver: Driver,
    log: DirtyLog,
}

impl Rig {
    fn connect(subject: &Subject, plan: Plan) -> Self {
        let mut driver = Driver::connect(subject.socket(), plan).unwrap();
        let log = DirtyLog::below(END).unwrap();
        log.pass_to(&driver.frontend).unwrap();
        driver.set_logging(Logs::Everything).unwrap();
        Self { driver, log }
    }

    /// Stages requests on queue `index`, lets the device serve them, and compares what it wrote, which is to
    /// lie in these `pages` beside its rings, with what it logged.
    fn logs(&mut self, index: usize, stage: impl FnOnce(&mut Queue)) -> Pages {
        let queue = &mut self.driver.queues[index];
        stage(queue);
        self.log.collect();
        let before = contents(&self.driver.memory);
        let queue = &mut self.driver.queues[index];
        queue.publish_and_kick();
        queue.finish();
        // All is logged once it has stopped.
        self.driver.stop(index).unwrap();
        let logged = self.log.collect();
        let after = contents(&self.driver.memory);
        self.driver.start(index).unwrap();

        let queue = &self.driver.queues[index];
        let at = |offset| page(self.driver.memory.guest(offset));
        let first = at(0);
        let pairs = before.chunks(PAGE).zip(after.chunks(PAGE));
        let changed = (first..).zip(pairs).filter(|(_, (was, is))| was != is);
        for (page, _) in changed {
            let ours = page == at(queue.available_ring());
            assert!(
                ours || logged.contains(&page),
                "page {page:#x} changed, and is not logged"
            );
        }
        assert!(logged.contains(&at(queue.used_ring())), "the used ring");
        // Idle rings are armed and disarmed at any moment.
        let rings: Pages = self
            .driver
            .queues
            .iter()
            .map(|queue| at(queue.used_ring()))
            .collect();
        logged.difference(&rings).copied().collect()
    }

    /// The pages of `bytes` of the driver's memory.
    fn pages(&self, bytes: Range<usize>) -> Pages {
        let guest = |offset| page(self.driver.memory.guest(offset));
        (guest(bytes.start)..=guest(bytes.end - 1)).collect()
    }
}

fn contents(memory: &GuestMemory) -> Vec<u8> {
    let len = memory.region().len;
    memory.get(0, usize::try_from(len).unwrap())
}

fn queues(queues: u16, without: u64) -> Plan {
    Plan { queues, without }
}

#[test]
fn what_a_request_writes_is_logged_and_nothing_else() {
    for plan in [queues(1, 0), queues(1, feature::EVENT_IDX), queues(4, 0)] {
        let subject = Subject::start(Disk::memory(SIZE, plan.queues), &[]).unwrap();
        let mut rig = Rig::connect(&subject, plan);
        rig.driver.queues[0].round(0xa5);
        for index in 0..usize::from(plan.queues) {
            requests_on(&mut rig, index);
        }
    }
}

/// Queues of a frontend that does not accept `PROTOCOL_FEATURES` start by their kick, before it gives the log.
#[test]
fn what_was_written_before_there_was_a_log_counts_as_written() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let mut driver = Driver::connect(subject.socket(), queues(1, 0)).unwrap();
    driver.set_logging(Logs::Everything).unwrap();
    driver.queues[0].round(0xa5);
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&driver.frontend).unwrap();
    let region = driver.memory.region();
    let all = page(region.guest)..page(region.guest + region.len);
    assert_eq!(log.collect(), all.collect());
    // Once is enough. (Idle rings are armed and disarmed at any moment.)
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&driver.frontend).unwrap();
    let data = driver.memory.guest(driver.queues[0].data(0));
    assert!(!log.collect().contains(&page(data)));
}

/// Requests of every kind, one after the other.
fn requests_on(rig: &mut Rig, index: usize) {
    let queue = &rig.driver.queues[index];
    let (data, header) = (queue.data(8), queue.header(0));
    let status = rig.pages(header + 16..header + 17);
    let both = |pages: Pages| &pages | &status;

    // Reads at page borders and beside them, in one buffer and in two.
    for buffers in [
        vec![(data, 4096)],
        vec![(data, 8192)],
        vec![(data + 1, 4096)],
        vec![(data + PAGE - 1, 1024)],
        vec![(data + PAGE - 1, 1), (data + 5 * PAGE, 511)],
        vec![(data + 1, 40_960)],
    ] {
        rig.driver.memory.put(data, &vec![0x11; 12 * PAGE]);
        let written = buffers.iter().map(|&(at, len)| rig.pages(at..at + len));
        let expected = written.fold(status.clone(), |all, pages| &all | &pages);
        let guest = |&(at, len): &(usize, usize)| {
            let address = rig.driver.memory.guest(at);
            (address, u32::try_from(len).unwrap())
        };
        let parts: Vec<_> = buffers.iter().map(guest).collect();
        let logged = rig.logs(index, |queue| queue.read_over(0, 0, &parts));
        assert_eq!(rig.driver.queues[index].status(0), Status::Ok);
        assert_eq!(logged, expected, "a read to {buffers:x?}");
    }

    let identified = both(rig.pages(data..data + 20));
    assert_eq!(rig.logs(index, |queue| queue.get_id(8)), identified);
    let from = |rig: &mut Rig, stage: fn(&mut Queue)| rig.logs(index, stage);
    assert_eq!(
        from(rig, |queue| queue.write(0, 0, 0xa5)),
        status,
        "a write"
    );
    assert_eq!(
        from(rig, |queue| queue.write_indirect(0, 0, 0xa5)),
        status,
        "another"
    );
    assert_eq!(from(rig, |queue| queue.bare(0, 4)), status, "a flush");
    assert_eq!(
        from(rig, |queue| queue.bare(0, 99)),
        status,
        "of no known kind"
    );
    assert_eq!(
        from(rig, |queue| queue.read(0, SIZE / 512)),
        status,
        "beyond the end"
    );
    assert_eq!(rig.driver.queues[index].status(0), Status::IoErr);
    assert_eq!(
        from(rig, |queue| queue.read_over(0, 0, &[])),
        status,
        "of no length"
    );

    // Many at once.
    let all = rig.pages(data..data + 8 * PAGE);
    let logged = rig.logs(index, |queue| {
        for slot in 0..8 {
            queue.read(8 + slot, 0);
            queue.write(16 + slot, BLOCK, 0xa5);
        }
    });
    assert_eq!(logged, both(all));
}

/// A disk may have written before it fails.
#[test]
fn a_read_that_fails_is_logged_as_if_it_had_not() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let disk = "fault:error=EIO,op=read,every=1,on=memory:size=16M";
    let server = Server::pollux(&socket, &["--disk", disk]).unwrap();
    let mut driver = Driver::connect(server.socket(), queues(1, 0)).unwrap();
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&driver.frontend).unwrap();
    driver.set_logging(Logs::Everything).unwrap();
    let mut rig = Rig { driver, log };
    let data = rig.driver.queues[0].data(0);
    let logged = rig.logs(0, |queue| queue.read(0, 0));
    assert_eq!(rig.driver.queues[0].status(0), Status::IoErr);
    assert!(
        logged.is_superset(&rig.pages(data..data + PAGE)),
        "{logged:x?}"
    );
}

/// A driver of one queue, whose requests of one kind meet this `fault`, and no log yet.
fn faulty(socket: &Path, fault: &str) -> (Server, Driver) {
    let disk = format!("fault:{fault},on=memory:size=16M");
    let server = Server::pollux(socket, &["--disk", &disk]).unwrap();
    let driver = Driver::connect(server.socket(), queues(1, 0)).unwrap();
    (server, driver)
}

/// A guest can be migrated while its disk does not answer: no message waits for that.
#[test]
fn a_log_is_taken_while_a_request_hangs() {
    let folder = tempfile::TempDir::new().unwrap();
    let (_server, mut driver) = faulty(&folder.path().join("s"), "hang=request,op=read,every=1");
    // The write ends, so the read is in flight.
    let queue = &mut driver.queues[0];
    queue.read(0, 0);
    queue.write(1, 0, 0xa5);
    queue.publish_and_kick();
    eventually(|| driver.queues[0].used() == 1, || "the write".into());
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&driver.frontend).unwrap();
    driver.set_logging(Logs::Everything).unwrap();
    let queue = &mut driver.queues[0];
    queue.write(2, 0, 0xa5);
    queue.publish_and_kick();
    eventually(|| driver.queues[0].used() == 2, || "another write".into());
    driver.set_logging(Logs::Nothing).unwrap();
    let queue = &driver.queues[0];
    let logged = log.collect();
    for written in [queue.header(2) + 16, queue.used_ring()] {
        let page = page(driver.memory.guest(written));
        assert!(logged.contains(&page), "{page:#x} of {logged:x?}");
    }
}

/// It was in flight as the log came, and writes to memory after that.
#[test]
fn what_is_in_flight_is_logged_as_it_ends() {
    let folder = tempfile::TempDir::new().unwrap();
    let (_server, mut driver) = faulty(&folder.path().join("s"), "delay=1s,op=read,every=1");
    loop {
        driver.set_logging(Logs::Nothing).unwrap();
        let queue = &mut driver.queues[0];
        let (data, ended) = (queue.data(0), queue.used());
        queue.read(0, 0);
        queue.publish_and_kick();
        let log = DirtyLog::below(END).unwrap();
        log.pass_to(&driver.frontend).unwrap();
        driver.set_logging(Logs::Everything).unwrap();
        let queue = &mut driver.queues[0];
        let was_in_flight = queue.used() == ended;
        queue.finish();
        driver.set_logging(Logs::Nothing).unwrap();
        // On a busy machine it may have ended before.
        if was_in_flight {
            let page = page(driver.memory.guest(data));
            assert!(log.collect().contains(&page));
            return;
        }
    }
}

/// What came before is in the log, and nothing more.
#[test]
fn a_ring_that_breaks_was_logged() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let mut rig = Rig::connect(&subject, queues(1, 0));
    let memory = std::sync::Arc::clone(&rig.driver.memory);
    let queue = &mut rig.driver.queues[0];
    let data = queue.data(0);
    memory.put(data, &[0x11; PAGE]);
    rig.log.collect();
    let queue = &mut rig.driver.queues[0];
    queue.read(0, 0);
    queue.read_to(1, 0, 2 << 32);
    queue.publish_and_kick();
    // The second chain leads out of the memory: it never comes back.
    rig.driver.stop(0).unwrap();
    let logged = rig.log.collect();
    let queue = &rig.driver.queues[0];
    assert_eq!(queue.used(), 1);
    let bytes = [
        data..data + PAGE,
        queue.header(0)..queue.header(0) + 17,
        queue.used_ring()..queue.used_ring() + 1,
    ];
    let expected = bytes
        .into_iter()
        .fold(Pages::new(), |all, bytes| &all | &rig.pages(bytes));
    assert_eq!(logged, expected);
}

/// As a guest is migrated: its memory is copied while the device writes, then what was logged, again and
/// again; once the queues have stopped for the last time.
#[test]
fn a_copy_made_while_the_device_writes_is_complete() {
    for count in [1u16, 4] {
        let subject = Subject::start(Disk::memory(SIZE, count), &[]).unwrap();
        let Rig { mut driver, log } = Rig::connect(&subject, queues(count, 0));
        driver.queues[0].round(1);
        let memory = &driver.memory;
        let first = page(memory.guest(0));
        let mut copy = contents(memory);
        log.collect();
        let mut fetch = |pages: Pages| {
            for number in pages {
                let at = usize::try_from(number - first).unwrap() * PAGE;
                copy[at..at + PAGE].copy_from_slice(&memory.get(at, PAGE));
            }
        };
        let mut byte = 1u8;
        let mut queues = driver.queues.iter_mut().collect::<Vec<_>>();
        let busy = || {
            byte = byte.wrapping_add(1);
            for queue in &mut queues {
                queue.round(byte);
            }
        };
        let (rounds, ()) = while_busy(busy, || {
            for _ in 0..200 {
                fetch(log.collect());
            }
        });
        assert!(rounds > 0, "the device wrote meanwhile");
        for index in 0..count {
            driver.frontend.get_vring_base(u32::from(index)).unwrap();
        }
        fetch(log.collect());
        for queue in &driver.queues {
            let data = queue.data(0)..queue.data(0) + usize::from(SLOTS) * PAGE;
            // The driver writes its data before each write; the device wrote last.
            assert_eq!(
                copy[data.clone()],
                memory.get(data.start, data.len()),
                "data"
            );
            for page in [queue.header(0), queue.used_ring()] {
                assert_eq!(
                    copy[page..page + PAGE],
                    memory.get(page, PAGE),
                    "rings and status"
                );
            }
        }
    }
}

#[test]
fn logging_is_switched_on_and_off_while_the_rings_run() {
    let subject = Subject::start(Disk::memory(SIZE, 2), &[]).unwrap();
    let Rig { mut driver, log } = Rig::connect(&subject, queues(2, 0));
    driver.set_logging(Logs::Nothing).unwrap();
    let Driver {
        frontend,
        queues,
        features,
        memory,
    } = &mut driver;
    let (first, second) = queues.split_at_mut(1);
    let (busy_queue, queue) = (&mut first[0], &mut second[0]);
    let addresses = [Logs::Nothing, Logs::Everything]
        .map(|logs| [busy_queue.addresses(logs), queue.addresses(logs)]);
    let data = page(memory.guest(queue.data(3)));
    let used = page(memory.guest(queue.used_ring()));
    let mut byte = 0u8;
    let busy = || {
        busy_queue.round(byte);
        byte = byte.wrapping_add(1);
    };
    let (rounds, ()) = while_busy(busy, || {
        for turn in 0..100 {
            let on = turn % 2 == 1;
            let bit = if on { feature::LOG_ALL } else { 0 };
            let features = *features | bit;
            frontend
                .tell(Code::SetFeatures, &features.to_le_bytes(), &[])
                .unwrap();
            for message in &addresses[usize::from(on)] {
                frontend.tell(Code::SetVringAddr, message, &[]).unwrap();
            }
            log.collect();
            queue.read(3, 0);
            queue.publish_and_kick();
            queue.finish();
            let mut logged = Pages::new();
            if on {
                // The used ring is logged after the driver has seen it change.
                pollux_tests::process::eventually(
                    || {
                        logged.append(&mut log.collect());
                        logged.contains(&used)
                    },
                    || "the used ring is not logged".into(),
                );
                assert!(logged.contains(&data));
            } else {
                assert_eq!(log.collect(), logged, "nothing is logged");
            }
        }
    });
    assert!(rounds > 0, "the other queue ran meanwhile");
}

/// Once the message is answered, nothing goes to the old log any more.
#[test]
fn a_larger_log_takes_the_place_of_one_that_is_written() {
    let subject = Subject::start(Disk::memory(SIZE, 2), &[]).unwrap();
    let Rig { mut driver, log } = Rig::connect(&subject, queues(2, 0));
    let Driver {
        frontend,
        queues,
        memory,
        ..
    } = &mut driver;
    let (first, second) = queues.split_at_mut(1);
    let (busy_queue, queue) = (&mut first[0], &mut second[0]);
    let data = page(memory.guest(queue.data(3)));
    let mut old = log;
    let mut byte = 0u8;
    let busy = || {
        busy_queue.round(byte);
        byte = byte.wrapping_add(1);
    };
    let (rounds, ()) = while_busy(busy, || {
        for turn in 1..=50 {
            let new = DirtyLog::below(END + turn * (1 << 30)).unwrap();
            new.pass_to(frontend).unwrap();
            old.collect();
            queue.read(3, 0);
            queue.publish_and_kick();
            queue.finish();
            assert!(new.collect().contains(&data));
            assert_eq!(old.collect(), Pages::new(), "the old log is done with");
            old = new;
        }
    });
    assert!(rounds > 0, "the other queue ran meanwhile");
}

#[test]
fn memory_that_is_added_is_logged() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let Rig { mut driver, log } = Rig::connect(&subject, queues(1, 0));
    let extra = GuestMemory::new(2 << 32, 4 * PAGE).unwrap();
    driver.frontend.add_mem_reg(&extra.region()).unwrap();
    let queue = &mut driver.queues[0];
    queue.read_to(0, 0, extra.guest(PAGE + 7));
    queue.publish_and_kick();
    queue.finish();
    let first = page(extra.guest(PAGE));
    assert!(log.collect().is_superset(&[first, first + 1].into()));
}

/// A frontend that gets no answer, and finds its session closed.
fn refuses(subject: &Subject, what: &str, does: impl FnOnce(&mut Driver) -> std::io::Result<()>) {
    let mut driver = Driver::connect(subject.socket(), queues(2, 0)).unwrap();
    let refusal = does(&mut driver).and_then(|()| driver.frontend.number(Code::GetFeatures));
    assert!(refusal.is_err(), "{what} is taken");
    let mut driver = Driver::connect(subject.socket(), queues(2, 0)).unwrap();
    driver.queues[1].round(7);
}

#[test]
fn a_log_that_would_miss_something_is_refused() {
    let subject = Subject::start(Disk::memory(SIZE, 2), &[]).unwrap();
    let end = END;
    refuses(&subject, "a log without a descriptor", |driver| {
        driver.frontend.set_log_base(4096, 0, None)
    });
    for (len, offset) in [
        (0, 0),
        (4097, 0),
        (4096, 1),
        (1, u64::MAX),
        (u64::MAX, 0),
        (1 << 62, 0),
    ] {
        refuses(&subject, "a log beyond its file", |driver| {
            let file = GuestMemory::new(0, 4096)?;
            driver
                .frontend
                .set_log_base(len, offset, Some(file.region().fd))
        });
    }
    refuses(&subject, "a log that is no file", |driver| {
        let kick = driver.queues[0].kick.as_fd();
        driver.frontend.set_log_base(1 << 20, 0, Some(kick))
    });
    refuses(&subject, "a log that ends before the memory", |driver| {
        DirtyLog::below(1 << 32)?.pass_to(&driver.frontend)?;
        driver.set_logging(Logs::Everything)
    });
    refuses(&subject, "a shorter log", |driver| {
        DirtyLog::below(end)?.pass_to(&driver.frontend)?;
        driver.set_logging(Logs::Everything)?;
        DirtyLog::below(1 << 20)?.pass_to(&driver.frontend)
    });
    refuses(&subject, "memory beyond the log", |driver| {
        DirtyLog::below(end)?.pass_to(&driver.frontend)?;
        driver.set_logging(Logs::Everything)?;
        let extra = GuestMemory::new(end - PAGE as u64, 2 * PAGE)?;
        driver.frontend.add_mem_reg(&extra.region())
    });
    for address in [end - 8, end, u64::MAX] {
        refuses(&subject, "a used ring beyond the log", |driver| {
            DirtyLog::below(end)?.pass_to(&driver.frontend)?;
            driver.set_logging(Logs::Everything)?;
            let mut message = driver.queues[0].addresses(Logs::Everything);
            message.splice(32..40, address.to_le_bytes());
            driver.frontend.tell(Code::SetVringAddr, &message, &[])
        });
    }
}

#[test]
fn a_log_that_was_not_negotiated_is_refused() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let frontend = Frontend::connect(subject.socket()).unwrap();
    frontend.tell_early(Code::SetOwner, &[]).unwrap();
    let features = frontend.number(Code::GetFeatures).unwrap();
    assert_ne!(features & feature::LOG_ALL, 0, "logging is offered");
    let protocol = frontend.number(Code::GetProtocolFeatures).unwrap() & !(1 << 1);
    frontend
        .tell_early(Code::SetProtocolFeatures, &protocol.to_le_bytes())
        .unwrap();
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&frontend).unwrap_err();
}

/// Whoever takes every feature that is offered has no log for that.
#[test]
fn logging_without_a_log_is_no_harm() {
    let subject = Subject::start(Disk::memory(SIZE, 2), &[]).unwrap();
    let mut driver = Driver::connect(subject.socket(), queues(2, 0)).unwrap();
    driver.set_logging(Logs::Everything).unwrap();
    driver.queues[0].round(7);
    let log = DirtyLog::below(END).unwrap();
    log.pass_to(&driver.frontend).unwrap();
    driver.queues[0].round(8);
    assert!(!log.collect().is_empty());
}
