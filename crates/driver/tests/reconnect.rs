//! The server closes the connection again and again, under threads that wait in every way: all notice
//! nothing but a delay.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::Served;
use pollux_disk::{Disk, Durability, Event, Failure, Op, Queued, Request, Ticket};
use pollux_disk_conformance::eventually;
use pollux_driver::{
    CompletionMode, Driver, Experiment, Hybrid, Lost, Options, Queue, Reconnect, Waiter, Waiting,
};
use pollux_memory::{Loan, Region, Span};

const BLOCK: usize = 4096;

/// What one thread does, on a block of its own, until it is told to stop.
struct Job<'a> {
    driver: &'a Driver,
    at: u64,
    over: &'a AtomicBool,
    /// Rounds that have ended as they should.
    rounds: &'a AtomicU64,
}

impl Job<'_> {
    fn goes_on(&self) -> Option<u8> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let byte = u8::try_from(round % 251).unwrap();
        (!self.over.load(Ordering::Relaxed)).then_some(byte)
    }

    /// Handles of a shared queue; `wait` sees one to its end.
    fn handles(&self, queue: &Queue, completion: CompletionMode) {
        while let Some(byte) = self.goes_on() {
            let data = vec![byte; BLOCK];
            let written = queue.write(self.at, data, Durability::Stable, completion);
            let mut buffer = written.wait().unwrap();
            buffer.fill(0);
            let mut read = queue.read(self.at, buffer, completion);
            while completion == CompletionMode::Polled && !read.is_done() {
                thread::yield_now();
            }
            assert_eq!(read.wait().unwrap(), vec![byte; BLOCK]);
        }
    }

    /// A channel, with memory that is registered or not, and that the caller keeps until this returns.
    fn channel(&self, mut channel: impl Hybrid, mut waiter: Waiter, memory: Span) {
        let mut end = |channel: &mut dyn Hybrid, op| {
            let request = Request {
                ticket: Ticket(7),
                op,
            };
            let queued = channel.queue_as(request, CompletionMode::Call);
            assert_eq!(queued, Queued::Pending);
            channel.submit();
            let done = &mut |done: pollux_disk::Completion| {
                assert_eq!((done.ticket, done.result), (Ticket(7), Ok(())));
            };
            assert_eq!(waiter.wait(channel, None, done).unwrap(), 1);
        };
        let list = Loan::first(&[memory], u64::MAX);
        let at = self.at;
        while let Some(byte) = self.goes_on() {
            memory.write(&[byte; BLOCK]);
            // SAFETY: the list ends below, when nothing is in flight.
            let from = unsafe { list.spans() };
            let durability = Durability::Volatile;
            end(
                &mut channel,
                Op::Write {
                    at,
                    from,
                    durability,
                },
            );
            end(&mut channel, Op::Flush);
            memory.write(&[0; BLOCK]);
            // SAFETY: as for the write.
            let into = unsafe { list.spans() };
            end(&mut channel, Op::Read { at, into });
            let mut found = [0; BLOCK];
            memory.read(&mut found);
            assert_eq!(found, [byte; BLOCK]);
        }
        drop(channel);
        list.end();
    }
}

/// Memory of the user's own.
fn region() -> Arc<Region> {
    let memfd = rustix::fs::memfd_create("user", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, BLOCK as u64).unwrap();
    Arc::new(Region::map(memfd.into(), 0, 0, 0, BLOCK as u64).unwrap())
}

/// Runs every kind of caller, while the server hangs up `times` times; `options` say how they connect.
fn under_hang_ups(times: u64, options: &Options) {
    let served = Served::disk("memory:size=1M", usize::try_from(times).unwrap() + 1);
    let driver = served.connect(options);
    let mapped = region();
    driver.map(&mapped).unwrap();
    let unknown = region();
    let queue = driver.queue(0).unwrap();
    let (over, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 7]);
    thread::scope(|scope| {
        let (driver, queue, over) = (&driver, &queue, &over);
        let mut jobs = rounds.iter().zip(0..).map(|(rounds, number)| Job {
            driver,
            at: number * BLOCK as u64,
            over,
            rounds,
        });
        for completion in [
            CompletionMode::Call,
            CompletionMode::Polled,
            CompletionMode::Call,
        ] {
            let job = jobs.next().unwrap();
            scope.spawn(move || job.handles(queue, completion));
        }
        for (waiting, memory) in [(Waiting::Call, &mapped), (Waiting::Polled, &unknown)] {
            let (own, shared) = (jobs.next().unwrap(), jobs.next().unwrap());
            let waiter = move || Waiter::new(waiting).unwrap();
            scope.spawn(move || {
                let waiter = waiter();
                let channel = driver.channel(waiter.point()).unwrap();
                // SAFETY: the region is kept until after the scope.
                own.channel(channel, waiter, unsafe { memory.span() });
            });
            scope.spawn(move || {
                let (waiter, buffer) = (waiter(), shared.driver.allocate(BLOCK).unwrap());
                let channel = queue.channel(waiter.point()).unwrap();
                // SAFETY: the buffer is kept until this returns.
                shared.channel(channel, waiter, unsafe { buffer.span() });
            });
        }
        for time in 0..times {
            let before = rounds
                .each_ref()
                .map(|rounds| rounds.load(Ordering::Relaxed));
            let all = || rounds.iter().zip(before);
            while all().any(|(now, before)| now.load(Ordering::Relaxed) < before + 3) {
                thread::yield_now();
            }
            assert_eq!(driver.reconnects(), time);
            served.hang_up();
            while driver.reconnects() == time {
                thread::yield_now();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let counters = queue.counters();
    assert_eq!((driver.reconnects(), driver.lost()), (times, None));
    assert!(
        counters.replayed > 0 && counters.restarts > 0,
        "{counters:?}"
    );
    driver.unmap(&mapped);
    drop((queue, driver));
    served.join();
}

#[test]
fn callers_notice_nothing_but_a_delay() {
    under_hang_ups(20, &Options::default());
}

#[test]
fn nor_do_they_with_the_poorest_of_servers() {
    use pollux_blk::feature;
    under_hang_ups(
        5,
        &Options::default().queue_size(8).experiment(Experiment {
            without: feature::INDIRECT_DESC | feature::EVENT_IDX,
            // Of the protocol, all but CONFIG, BACKEND_REQ and MQ: REPLY_ACK and CONFIGURE_MEM_SLOTS.
            without_protocol: 1 << 3 | 1 << 15,
            ..Experiment::default()
        }),
    );
}

/// Being back for a moment is not being back: else a request that makes its server crash would do so for
/// ever. The flush after a write does, though the write has ended each time.
#[test]
fn a_server_that_comes_back_and_ends_nothing_is_given_up() {
    for (hangs, ended) in [("hang=device", 0), ("hang=request,op=flush", 1)] {
        let spec = format!("fault:{hangs},on=memory:size=1M");
        let served = Served::devices([spec.leak()]);
        let within = Duration::from_millis(300);
        let driver = served.connect(&Options::default().reconnect(Reconnect::Within(within)));
        let (told, events) = std::sync::mpsc::channel();
        let subscription = driver.events().subscribe(move |event| {
            let _ = told.send(event);
        });
        let queue = driver.queue(0).unwrap();
        let data = vec![0; BLOCK];
        let poison = queue.write(0, data, Durability::Stable, CompletionMode::Call);
        thread::scope(|scope| {
            let waits = scope.spawn(|| poison.wait());
            // Each server gets the request, ends what it ends of it, and is gone.
            let mut gone = 0;
            while driver.lost().is_none() {
                let counters = queue.counters();
                if counters.replayed >= gone && counters.requests >= ended * (gone + 1) {
                    served.hang_up();
                    gone += 1;
                }
                thread::yield_now();
            }
            assert_eq!(
                waits.join().unwrap().map_err(Failure::from),
                Err(Failure::Lost)
            );
        });
        let lost = driver.lost();
        assert!(
            matches!(lost, Some(Lost::Away { within: told, .. }) if told == within),
            "{lost:?}"
        );
        assert!(driver.reconnects() > 2, "it was given a chance");
        assert_eq!(events.recv(), Ok(Event::Lost));
        drop(subscription);
    }
}

/// Nothing has made it crash: no request was there.
#[test]
fn a_disk_without_requests_outlives_a_server_that_comes_and_goes() {
    let served = Served::devices(["memory:size=1M"]);
    let within = Duration::from_secs(1);
    let driver = served.connect(&Options::default().reconnect(Reconnect::Within(within)));
    let queue = driver.queue(0).unwrap();
    let mut gone = 0;
    let begin = Instant::now();
    while begin.elapsed() < 2 * within {
        if driver.reconnects() == gone {
            served.hang_up();
            gone += 1;
        }
        thread::yield_now();
    }
    let read = queue.read(0, vec![1; BLOCK], CompletionMode::Call);
    assert!(read.wait().unwrap() == vec![0; BLOCK]);
    assert!(gone > 2, "{gone}");
}

/// A server may keep what is written in a cache of its own, which goes with it.
#[test]
fn what_had_ended_of_a_request_is_done_again_at_the_next_server() {
    // A chain has six buffers in a queue of eight entries.
    for (hangs, buffers, durability, ended) in [
        ("op=flush", 1, Durability::Stable, 1),
        ("op=flush", 12, Durability::Stable, 2),
        ("op=write,range=24K-48K", 12, Durability::Stable, 1),
        ("op=write,range=24K-48K", 12, Durability::Volatile, 1),
    ] {
        let first = format!("fault:hang=request,{hangs},on=memory:size=1M");
        let served = Served::devices([first.leak(), "memory:size=1M"]);
        let within = Reconnect::Within(Duration::from_secs(60));
        let driver = served.connect(&Options::default().queue_size(8).reconnect(within));
        let queue = driver.queue(0).unwrap();
        let buffers = (0..buffers).map(|_| {
            let mut buffer = driver.allocate(BLOCK).unwrap();
            buffer.write(0, &[7; BLOCK]);
            buffer
        });
        let data: Vec<_> = buffers.collect();
        let len = data.len() * BLOCK;
        let mut write = queue.write(0, data, durability, CompletionMode::Polled);
        while queue.counters().requests < ended {
            assert!(!write.is_done());
        }
        served.hang_up();
        write.wait().unwrap();
        let read = queue.read(0, vec![0; len], CompletionMode::Call);
        let read = read.wait().unwrap();
        assert!(read == vec![7; len], "{hangs}, {len} bytes, {durability:?}");
        assert_eq!(driver.reconnects(), 1);
    }
}

/// A server takes memory back once all requests have ended, which may be later than an answer is waited for.
#[test]
fn memory_that_is_taken_back_meanwhile_does_not_end_a_slow_request() {
    let served = Served::disk("fault:delay=3s,op=read,on=memory:size=1M", usize::MAX);
    let driver = served.connect(&Options::default().patience(Duration::from_secs(1)));
    let queue = driver.queue(0).unwrap();
    let file = pollux_memory::memfd("test", BLOCK).unwrap();
    let buffer = driver.register(file, 0, BLOCK as u64).unwrap();
    let read = queue.read(0, vec![1; BLOCK], CompletionMode::Call);
    driver.unregister(buffer).unwrap();
    assert!(read.wait().unwrap() == vec![0; BLOCK]);
    // The server may have ended the read before it let go of its session.
    eventually(|| driver.reconnects() == 1, || format!("{driver:?}"));
    queue.flush(CompletionMode::Call).wait().unwrap();
    assert_eq!(driver.lost(), None);
}
