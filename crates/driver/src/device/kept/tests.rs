use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pollux_disk::{Channel as _, Op, Queued, Request, Ticket};
use pollux_memory::Loan;
use pollux_ring::Suppression;

use super::*;
use crate::common::Served;
use crate::device::active_queue::ActiveQueue;
use crate::memory::memfd::memfd_region;
use crate::memory::pool::Pool;
use crate::{Channel, CompletionMode, Driver, Hybrid as _, Options, Reconnect, Waiter, Waiting};

/// More rings than there is room for in an arena, of queues of this size.
const MANY: usize = 80;
const SIZE: u16 = 1024;

fn options() -> Options {
    let within = Reconnect::Within(Duration::from_secs(60));
    Options::default().queue_size(SIZE).reconnect(within)
}

fn told(pool: &Pool) -> Arc<Rings> {
    let rings = Rings::new(pool, 8, Suppression::EventIdx, None).unwrap();
    rings.are_told();
    Arc::new(rings)
}

#[test]
fn rings_of_a_server_that_is_gone_are_kept_until_the_next_is_gone_too() {
    let pool = Pool::new(Box::new(|_| Ok(())));
    let (kept, rings) = (Kept::default(), told(&pool));
    let known = Arc::downgrade(&rings);
    kept.keep(0, rings);
    kept.advance(1);
    assert!(known.upgrade().is_some());
    kept.advance(2);
    assert!(known.upgrade().is_none());
    assert_eq!(pool.retired(), 0);
    // Late news of one that was gone by then.
    kept.keep(0, told(&pool));
    assert_eq!(pool.retired(), 0);
    kept.keep(1, told(&pool));
    drop(kept);
    assert_ne!(pool.retired(), 0);
}

/// All is in the first arena, and nothing of it is lost.
fn is_small(driver: &Driver) -> bool {
    let pool = format!("{:?}", driver.device().unwrap().pool());
    pool.contains("arenas: 1,") && driver.retired() == 0
}

fn open(driver: &Driver) -> Channel {
    let waiter = Waiter::new(Waiting::Polled).unwrap();
    driver.channel(waiter.point()).unwrap()
}

#[test]
fn queues_that_come_and_go_while_the_server_is_away_take_a_bounded_amount_of_memory() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&options());
    let channel = open(&driver);
    served.hang_up();
    served.join();
    drop(channel);
    for _ in 0..MANY {
        drop(open(&driver));
    }
    assert!(is_small(&driver), "{:?}", driver.device());
}

/// The server closes the connection, and is there again.
fn restart(served: &Served, driver: &Driver) {
    let before = driver.reconnects();
    served.hang_up();
    while driver.reconnects() == before {
        thread::yield_now();
    }
}

fn queue(channel: &mut Channel, op: Op) {
    let request = Request {
        ticket: Ticket(0),
        op,
    };
    let queued = channel.queue_as(request, CompletionMode::Polled);
    assert_eq!(queued, Queued::Pending);
    channel.submit();
}

fn flush(channel: &mut Channel) {
    queue(channel, Op::Flush);
    let mut ended = 0;
    while ended == 0 {
        channel.reap(&mut |done| {
            assert_eq!(done.result, Ok(()));
            ended += 1;
        });
        // What was handed to another server.
        channel.submit();
    }
}

#[test]
fn queues_that_see_restarts_take_a_bounded_amount_of_memory() {
    let served = Served::devices(["memory:size=1M"]);
    let driver = served.connect(&options());
    for round in 0..MANY {
        let mut channel = open(&driver);
        flush(&mut channel);
        restart(&served, &driver);
        // It goes on at the server that is back, or stops before it has heard of that one and the next.
        if round % 2 == 0 {
            flush(&mut channel);
        } else {
            restart(&served, &driver);
        }
        drop(channel);
    }
    assert!(is_small(&driver), "{:?}", driver.device());
}

/// A server that only hangs may still write to what it was told of.
#[test]
fn no_server_is_told_of_rings_that_the_one_before_was_told_of() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&options());
    let channels = [open(&driver), open(&driver)];
    let device = driver.device().unwrap();
    let next = |index| {
        let attempt = device.kept.begin_attempt();
        device.prepare(attempt, index).unwrap().1
    };
    let attempts: Vec<_> = (0..4).map(|_| next(0)).collect();
    for two in attempts.windows(2) {
        assert!(!Arc::ptr_eq(&two[0], &two[1]));
    }
    // They take turns.
    assert!(Arc::ptr_eq(&attempts[0], &attempts[2]));
    assert!(Arc::ptr_eq(&attempts[1], &attempts[3]));
    // Nor of those of another queue, which is over.
    let [one, _other] = channels;
    drop(one);
    assert!(!Arc::ptr_eq(&next(1), &attempts[3]));
}

#[test]
fn a_queue_that_sees_a_restart_before_it_has_an_owner_loses_no_memory() {
    let served = Served::devices(["memory:size=1M"]);
    let driver = served.connect(&options());
    let device = driver.device().unwrap();
    let index = device.holders().take(0..1).unwrap();
    let queue = ActiveQueue::start(device, index).unwrap();
    restart(&served, &driver);
    drop(queue);
    restart(&served, &driver);
    restart(&served, &driver);
    assert!(is_small(&driver), "{:?}", driver.device());
}

#[test]
fn what_a_request_was_copied_to_is_kept_as_long_as_its_rings() {
    let served = Served::devices(["fault:hang=request,op=read,on=memory:size=1M"]);
    let driver = served.connect(&options().patience(Duration::from_secs(1)));
    let foreign = memfd_region("test", 4096).unwrap();
    for _ in 0..3 {
        // SAFETY: the region is kept until the end of the test.
        let list = Loan::first(&[unsafe { foreign.span() }], u64::MAX);
        // SAFETY: nothing is copied to it after the channel is closed, before which the list does not end.
        let into = unsafe { list.spans() };
        let mut channel = open(&driver);
        flush(&mut channel);
        queue(&mut channel, Op::Read { at: 0, into });
        let before = driver.reconnects();
        served.hang_up();
        drop(channel);
        list.end();
        while driver.reconnects() == before {
            thread::yield_now();
        }
        assert_eq!(driver.retired(), 0);
    }
}
