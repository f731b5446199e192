//! Wakers are others' code, and so is what their clones and drops do: one that panics there loses nobody's wake-up, and
//! none is dropped under the queue's lock.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use common::{Served, Woken};
use pollux_disk::Failure;
use pollux_driver::{CompletionMode, Options, Pending, Queue};

/// Longer than any wake-up takes: what is not there by then does not come.
const HUNG: Duration = Duration::from_secs(20);

/// Panics when the last of it is dropped.
struct Brittle;

impl Wake for Brittle {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("a task of the user's");
    }
}

/// Uses the queue when the last of it is dropped, as a task does that has requests of its own.
struct Task(Queue);

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.drive();
    }
}

/// A waker that cannot be cloned.
fn unclonable() -> Waker {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("a clone of the user's"), |_| (), |_| (), |_| ());
    // SAFETY: it has no data.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

fn poll(request: &mut Pending<()>, waker: &Waker) -> Poll<Result<(), Failure>> {
    let polled = Pin::new(request).poll(&mut Context::from_waker(waker));
    polled.map_err(Failure::from)
}

fn poll_panics(request: &mut Pending<()>, waker: &Waker) {
    let polled = catch_unwind(AssertUnwindSafe(|| poll(request, waker)));
    assert!(polled.is_err(), "{polled:?}");
}

/// The task goes on after the panic, and is woken by the end of the request.
fn goes_on(queue: &Queue, mut request: Pending<()>) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(poll(&mut request, &waker).is_pending());
    while !request.is_done() {
        queue.drive();
        std::thread::yield_now();
    }
    assert!(woken.0.load(Ordering::Relaxed), "a lost wake-up");
    assert_eq!(request.wait(), Ok(()));
}

/// Has `test` use the queue of a disk that is slow to flush. Whatever waits there is gone by the end of it.
fn on_a_slow_disk(test: impl FnOnce(&Queue)) {
    let served = Served::disk("fault:delay=1s,op=flush,on=memory:size=1M", 1);
    let driver = served.connect(&Options::default().queues(1));
    test(&driver.queue(0).unwrap());
    drop(driver);
    served.join();
}

#[test]
fn a_waker_that_panics_when_it_is_cloned_loses_no_later_wake_up() {
    on_a_slow_disk(|queue| {
        let mut request = queue.flush(CompletionMode::Call);
        poll_panics(&mut request, &unclonable());
        goes_on(queue, request);
    });
}

#[test]
fn a_waker_that_panics_when_it_is_replaced_loses_no_later_wake_up() {
    on_a_slow_disk(|queue| {
        let mut request = queue.flush(CompletionMode::Call);
        let brittle = Waker::from(Arc::new(Brittle));
        assert!(poll(&mut request, &brittle).is_pending());
        drop(brittle);
        poll_panics(&mut request, Waker::noop());
        goes_on(queue, request);
    });
}

#[test]
fn no_waker_is_dropped_under_the_lock() {
    on_a_slow_disk(|queue| {
        let mut request = queue.flush(CompletionMode::Call);
        let brittle = Waker::from(Arc::new(Brittle));
        assert!(poll(&mut request, &brittle).is_pending());
        drop(brittle);
        let task = Waker::from(Arc::new(Task(queue.clone())));
        poll_panics(&mut request, &task);
        drop(task);
        drop(request);
        let (ended, has_ended) = channel();
        let queue = queue.clone();
        std::thread::spawn(move || {
            queue.flush(CompletionMode::Call).wait().unwrap();
            ended.send(()).unwrap();
        });
        assert_eq!(has_ended.recv_timeout(HUNG), Ok(()), "a deadlock");
    });
}
