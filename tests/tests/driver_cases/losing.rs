//! Using a disk until it is lost, in every way.

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_disk::{Failure, Op, Queued, Request, Ticket};
use pollux_driver::{
    Buffer, CompletionMode, Driver, Hybrid, Options, Pending, Queue, Reconnect, Waiter, Waiting,
};
use pollux_memory::Spans;
use pollux_tests::backend::{Backend, Conduct, Plan};
use pollux_tests::drive::{self, PATIENCE};

/// Requests that each has in flight.
pub const DEPTH: usize = 4;
const BLOCK: usize = 4096;

/// Who uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Polled requests on a shared queue: nobody ever sleeps.
    Poller,
    /// Call-driven ones, waited for one after the other.
    Sleeper,
    /// Tasks of an event loop.
    Task,
    /// A channel into a shared queue.
    Shared(Waiting),
    /// A queue of its own.
    Own(Waiting),
}

/// Those that sleep until they are called.
pub const SLEEPERS: [Who; 4] = [
    Who::Sleeper,
    Who::Task,
    Who::Shared(Waiting::Call),
    Who::Own(Waiting::Call),
];

/// Reads, counting what succeeds, until the disk is lost.
///
/// # Panics
///
/// When a request ends by anything else, or does not end.
pub fn until_lost(driver: &Driver, who: Who, count: &AtomicU64) {
    match who {
        Who::Own(waiting) => {
            let mut waiter = Waiter::new(waiting).unwrap();
            let mut channel = driver.channel(waiter.point()).unwrap();
            by_channel(driver, &mut channel, &mut waiter, count);
        }
        Who::Shared(waiting) => {
            let mut waiter = Waiter::new(waiting).unwrap();
            let queue = driver.queue(0).unwrap();
            let mut channel = queue.channel(waiter.point()).unwrap();
            by_channel(driver, &mut channel, &mut waiter, count);
        }
        Who::Poller => by_handles(driver, count, CompletionMode::Polled, |queue, pending| {
            while !pending.is_done() {
                queue.poll();
            }
        }),
        Who::Sleeper => by_handles(driver, count, CompletionMode::Call, |_, _| ()),
        Who::Task => {
            let queue = driver.queue(0).unwrap();
            let task = || async {
                loop {
                    match start(driver, &queue, CompletionMode::Call).await {
                        Ok(_) => count.fetch_add(1, Ordering::Relaxed),
                        Err(error) => return is_lost(error),
                    };
                }
            };
            drive::run_tasks(&queue, (0..DEPTH).map(|_| task())).unwrap();
            later_ones_fail(driver, &queue);
        }
    }
}

fn is_lost(error: impl Into<Failure>) {
    assert_eq!(error.into(), Failure::Lost);
}

fn start(driver: &Driver, queue: &Queue, completion: CompletionMode) -> Pending<Buffer> {
    queue.read(0, driver.allocate(BLOCK).unwrap(), completion)
}

fn later_ones_fail(driver: &Driver, queue: &Queue) {
    for completion in [CompletionMode::Polled, CompletionMode::Call] {
        is_lost(queue.flush(completion).wait().unwrap_err());
        is_lost(
            queue
                .read(0, vec![0; BLOCK], completion)
                .wait()
                .unwrap_err(),
        );
    }
    assert!(driver.lost().is_some());
}

fn by_handles(
    driver: &Driver,
    count: &AtomicU64,
    completion: CompletionMode,
    before_wait: impl Fn(&Queue, &mut Pending<Buffer>),
) {
    let queue = driver.queue(0).unwrap();
    let mut in_flight: Vec<_> = (0..DEPTH)
        .map(|_| start(driver, &queue, completion))
        .collect();
    loop {
        let mut oldest = in_flight.remove(0);
        before_wait(&queue, &mut oldest);
        match oldest.wait() {
            Ok(buffer) => {
                count.fetch_add(1, Ordering::Relaxed);
                in_flight.push(queue.read(0, buffer, completion));
            }
            Err(error) => {
                is_lost(error);
                break;
            }
        }
    }
    for mut pending in in_flight {
        before_wait(&queue, &mut pending);
        // Those that had ended before the device went are still good.
        pending.wait().map_or_else(is_lost, drop);
    }
    later_ones_fail(driver, &queue);
}

fn by_channel(driver: &Driver, channel: &mut impl Hybrid, waiter: &mut Waiter, count: &AtomicU64) {
    let buffers = [(); DEPTH].map(|()| driver.allocate(BLOCK).unwrap());
    // SAFETY: the buffers are kept until all requests have ended, below.
    let span = |buffer: &Buffer| unsafe { buffer.span() };
    let lists = buffers.each_ref().map(|buffer| [span(buffer)]);
    let read = |ticket: Ticket| Request {
        ticket,
        op: Op::Read {
            at: 0,
            // SAFETY: the lists stay until all requests have ended, below.
            into: unsafe { Spans::new(&lists[usize::try_from(ticket.0).unwrap()]) },
        },
    };
    let kind = |ticket: Ticket| match ticket.0 % 2 {
        0 => CompletionMode::Polled,
        _ => CompletionMode::Call,
    };
    let mut free: Vec<_> = (0..DEPTH as u64).map(Ticket).collect();
    let mut in_flight = 0;
    let mut lost = false;
    while !lost || in_flight > 0 {
        if !lost {
            for ticket in free.drain(..) {
                match channel.queue_as(read(ticket), kind(ticket)) {
                    Queued::Pending => in_flight += 1,
                    Queued::Done(result) => {
                        assert_eq!(result, Err(Failure::Lost));
                        lost = true;
                    }
                }
            }
            channel.submit();
        }
        if in_flight == 0 {
            break;
        }
        let mut done = |one: pollux_disk::Completion| {
            in_flight -= 1;
            match one.result {
                Ok(()) => free.push(one.ticket),
                Err(failure) => {
                    assert_eq!(failure, Failure::Lost);
                    lost = true;
                }
            }
            count.fetch_add(1, Ordering::Relaxed);
        };
        let ended = waiter.wait(channel, Some(PATIENCE), &mut done).unwrap();
        assert!(ended > 0, "requests of a device that is gone never end");
    }
    let flush = Request {
        ticket: Ticket(9),
        op: Op::Flush,
    };
    let failed = Err(Failure::Lost);
    if channel.queue_as(flush, CompletionMode::Polled) == Queued::Done(failed) {
        return;
    }
    channel.submit();
    let mut results = vec![];
    let mut done = |one: pollux_disk::Completion| results.push(one.result);
    let ended = waiter.wait(channel, Some(PATIENCE), &mut done).unwrap();
    assert_eq!((ended, results), (1, vec![failed]));
}

/// Whoever closes the connection is gone for good.
pub fn never() -> Options {
    Options::default().reconnect(Reconnect::Never)
}

/// A device by hand that has `count` requests in flight and ends none.
pub fn holding(plan: Plan) -> Backend {
    let backend = Backend::start(plan).unwrap();
    backend.conduct(Conduct::Held);
    backend
}
