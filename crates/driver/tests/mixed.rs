//! Everybody on one queue at once: threads that block, that look, that give up; channels; tasks. Each with
//! its own part of the disk, which it reads back.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use common::Served;
use pollux_blk::feature;
use pollux_disk::{Channel as _, Durability, Op, Request, Ticket};
use pollux_driver::{
    CompletionMode, Driver, Experiment, Hybrid, KickLock, Mixed, Options, Pending, Queue, Waiter,
    Waiting,
};
use pollux_memory::Loan;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

const ROUNDS: u8 = 150;
const BYTES: usize = 1024;
const PART: u64 = 64 << 10;

const KINDS: [CompletionMode; 2] = [CompletionMode::Polled, CompletionMode::Call];

/// Writes and reads back, over and over, by a way of waiting that is `end`.
fn by_handles(queue: &Queue, part: u64, mut end: impl FnMut(Pending<Vec<u8>>) -> Vec<u8>) {
    for round in 0..ROUNDS {
        let completion = KINDS[usize::from(round % 2)];
        let at = part * PART + u64::from(round) * 512 % (PART / 2);
        let durability = if round % 16 == 0 {
            Durability::Stable
        } else {
            Durability::Volatile
        };
        end(queue.write(at, vec![round; BYTES], durability, completion));
        assert_eq!(
            end(queue.read(at, vec![0; BYTES], completion)),
            [round; BYTES]
        );
    }
}

fn looking(mut pending: Pending<Vec<u8>>) -> Vec<u8> {
    while !pending.is_done() {
        thread::yield_now();
    }
    pending.wait().unwrap()
}

/// Requests that are dropped at any stage.
fn by_dropping(queue: &Queue, part: u64) {
    for round in 0..ROUNDS {
        let completion = KINDS[usize::from(round % 2)];
        let mut pending = queue.read(part * PART, vec![0; BYTES], completion);
        if round % 3 > 0 {
            let _ = Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop()));
        }
        if round % 3 > 1 {
            pending.is_done();
        }
    }
}

fn by_channel(mut channel: impl Hybrid, mut waiter: Waiter, driver: &Driver, part: u64) {
    let mut buffer = driver.allocate(BYTES).unwrap();
    // SAFETY: the buffer is kept until the channel is gone, with nothing in flight.
    let list = Loan::first(&[unsafe { buffer.span() }], u64::MAX);
    for round in 0..ROUNDS {
        let completion = KINDS[usize::from(round % 2)];
        let at = part * PART + u64::from(round) * 512 % (PART / 2);
        buffer.write(0, &[round; BYTES]);
        // SAFETY: the list ends after the channel.
        let spans = unsafe { list.spans() };
        let (from, into) = (spans, spans);
        let durability = Durability::Volatile;
        let write = Op::Write {
            at,
            from,
            durability,
        };
        for op in [write, Op::Read { at, into }] {
            if let Op::Read { .. } = op {
                buffer.write(0, &[!round; BYTES]);
            }
            let ticket = Ticket(u64::from(round));
            let _pending = channel.queue_as(Request { ticket, op }, completion);
            channel.submit();
            let done = &mut |done: pollux_disk::Completion| {
                assert_eq!((done.ticket, done.result), (ticket, Ok(())));
            };
            assert_eq!(waiter.wait(&mut channel, None, done).unwrap(), 1);
        }
        let mut bytes = [0; BYTES];
        buffer.read(0, &mut bytes);
        assert_eq!(bytes, [round; BYTES]);
    }
    drop(channel);
    list.end();
}

/// What wakes a task that a thread of its own runs: an eventfd.
struct TaskWaker(OwnedFd);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).unwrap();
    }
}

/// A task. Its thread sleeps until the task is woken or the queue has to be driven.
fn by_task(queue: &Queue, part: u64) {
    let readiness = queue.readiness().unwrap();
    let event = Arc::new(TaskWaker(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
    let waker = Waker::from(Arc::clone(&event));
    by_handles(queue, part, |mut pending| {
        loop {
            let mut context = Context::from_waker(&waker);
            if let Poll::Ready(bytes) = Pin::new(&mut pending).poll(&mut context) {
                return bytes.unwrap();
            }
            let watch = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let mut fds = [watch(event.0.as_fd()), watch(readiness.as_fd())];
            rustix::event::poll(&mut fds, None).unwrap();
            let [woken, ready] = fds.map(|fd| !fd.revents().is_empty());
            if woken {
                rustix::io::read(&event.0, &mut [0; 8]).unwrap();
            }
            if ready {
                readiness.drive();
            }
        }
    });
}

fn everybody(options: &Options) {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(options);
    let queue = driver.queue(0).unwrap();
    let waiter = |waiting| Waiter::new(waiting).unwrap();
    let (calls, looks) = (waiter(Waiting::Call), waiter(Waiting::Adaptive));
    let channels = [&calls, &looks].map(|waiter| queue.channel(waiter.point()).unwrap());
    thread::scope(|scope| {
        let (queue, driver) = (&queue, &driver);
        for part in 0..3 {
            scope.spawn(move || by_handles(queue, part, |pending| pending.wait().unwrap()));
        }
        scope.spawn(|| by_handles(queue, 3, looking));
        scope.spawn(|| by_dropping(queue, 4));
        scope.spawn(|| by_task(queue, 5));
        let [one, other] = channels;
        scope.spawn(move || by_channel(one, calls, driver, 6));
        scope.spawn(move || by_channel(other, looks, driver, 7));
    });
    if options.experiment.kick_lock == KickLock::Released {
        assert_eq!(queue.counters().kicks_under_lock, 0);
    }
    drop(queue);
    assert_eq!((driver.retired(), driver.lost()), (0, None));
    drop(driver);
    served.join();
}

#[test]
fn all_ways_to_wait_at_once_on_the_smallest_queue() {
    everybody(&Options::default().queue_size(4).experiment(Experiment {
        without: feature::INDIRECT_DESC,
        ..Experiment::default()
    }));
}

#[test]
fn all_ways_to_wait_at_once_without_event_idx() {
    everybody(&Options::default().queue_size(8).experiment(Experiment {
        without: feature::EVENT_IDX,
        record_lock: true,
        ..Experiment::default()
    }));
}

#[test]
fn all_ways_to_wait_at_once_with_calls_suspended() {
    everybody(&Options::default().queue_size(8).experiment(Experiment {
        mixed: Mixed::SuspendedFor(Duration::from_micros(500)),
        ..Experiment::default()
    }));
}

#[test]
fn all_ways_to_wait_at_once_with_kicks_under_the_lock() {
    everybody(&Options::default().experiment(Experiment {
        kick_lock: KickLock::Held,
        record_lock: true,
        ..Experiment::default()
    }));
}

/// A thread with channels into two queues sleeps over one of them. Calls of the other queue are not for
/// it, though its wait point heard them before.
#[test]
fn who_sleeps_over_another_queue_keeps_no_calls_from_those_who_need_them() {
    let served = Served::disk("fault:delay=300ms,op=flush,on=memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let queues = [0, 1].map(|index| driver.queue(index).unwrap());
    let mut both = Waiter::new(Waiting::Call).unwrap();
    let mut channels = queues
        .each_ref()
        .map(|queue| queue.channel(both.point()).unwrap());
    let flush = Request {
        ticket: Ticket(0),
        op: Op::Flush,
    };
    let mut wait = |channel: &mut _| both.wait(channel, None, &mut |_| ()).unwrap();
    let [first, second] = &mut channels;
    // It has slept over the second, and holds that queue's calls.
    let _pending = second.queue_as(flush, CompletionMode::Call);
    second.submit();
    wait(second);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (driver, queue, over) = (&driver, &queues[1], &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let waiter = Waiter::new(Waiting::Call).unwrap();
                by_channel(queue.channel(waiter.point()).unwrap(), waiter, driver, 1);
            }
        });
        let _pending = first.queue_as(flush, CompletionMode::Call);
        first.submit();
        wait(first);
        over.store(true, Ordering::Relaxed);
    });
    drop((channels, queues, driver));
    served.join();
}
