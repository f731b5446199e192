//! Calls are read to count them and when the call descriptor is handed on: no sleeper loses its wake-up by that.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{Served, Woken};
use pollux_device::{Polling, Tuning};
use pollux_disk::wait::Sleeper;
use pollux_disk::{Armed, Channel, Op, Queued, Request, Ticket};
use pollux_driver::{CompletionMode, Driver, Hybrid, Options};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than any wake-up takes: what is not there by then does not come.
const HUNG: Duration = Duration::from_secs(20);

const FLUSH: Request = Request {
    ticket: Ticket(3),
    op: Op::Flush,
};

/// A disk with one queue.
fn one_queue(served: &Served) -> Driver {
    served.connect(&Options::default().queues(1))
}

/// Waits until `fd` is readable.
fn readable(fd: impl AsFd, within: Duration) -> bool {
    let within = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within)).unwrap() > 0
}

/// A request of `channel`, whose owner has armed over it and is called, but has not run since.
fn is_called(channel: &mut impl Hybrid, sleeper: &Sleeper) {
    loop {
        let queued = channel.queue_as(FLUSH, CompletionMode::Call);
        assert_eq!(queued, Queued::Pending);
        channel.submit();
        sleeper.arm();
        match channel.arm() {
            Armed::Idle => break,
            // It has ended at once; the next one may be slower.
            Armed::Pending => assert_eq!(reap(channel), 1),
            Armed::CannotSleep => panic!("calls cannot be waited for"),
        }
    }
    assert!(readable(sleeper.point(), HUNG), "no call");
}

fn reap(channel: &mut impl Channel) -> usize {
    let mut ended = 0;
    channel.reap(&mut |done| {
        assert_eq!(done.result, Ok(()));
        ended += 1;
    });
    ended
}

/// The owner sleeps on until it finds its request.
fn wakes(channel: &mut impl Channel, sleeper: &mut Sleeper) {
    loop {
        assert!(readable(sleeper.point(), HUNG), "a lost wake-up");
        sleeper.sleep(Some(Duration::ZERO), |_| ()).unwrap();
        if reap(channel) > 0 {
            return;
        }
        // It was a late call, about one that ended before.
        sleeper.arm();
        if channel.arm() == Armed::Pending {
            assert_eq!(reap(channel), 1);
            return;
        }
    }
}

#[test]
fn a_channel_that_opens_takes_no_wake_up_from_another() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let (mut sleeper, other) = (Sleeper::new().unwrap(), Sleeper::new().unwrap());
    let mut channel = queue.channel(sleeper.point()).unwrap();
    for _ in 0..20 {
        is_called(&mut channel, &sleeper);
        let opened = queue.channel(other.point()).unwrap();
        wakes(&mut channel, &mut sleeper);
        drop(opened);
    }
    drop((channel, queue, driver));
    served.join();
}

#[test]
fn counting_takes_no_wake_up_from_an_owner_that_has_armed() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = one_queue(&served);
    let mut sleeper = Sleeper::new().unwrap();
    let mut channel = driver.channel(sleeper.point()).unwrap();
    is_called(&mut channel, &sleeper);
    assert_eq!(channel.counters().sleeps, 1);
    wakes(&mut channel, &mut sleeper);
    let calls = channel.counters().calls;
    assert!(calls > 0);
    assert_eq!(channel.counters().calls, calls, "counted twice");
    drop(channel);

    let queue = driver.queue(0).unwrap();
    let mut channel = queue.channel(sleeper.point()).unwrap();
    is_called(&mut channel, &sleeper);
    assert!(channel.counters().calls > 0);
    wakes(&mut channel, &mut sleeper);
    drop((channel, queue, driver));
    served.join();
}

#[test]
fn a_channel_that_opens_takes_no_wake_up_from_a_task() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let (readiness, other) = (queue.readiness().unwrap(), Sleeper::new().unwrap());
    for _ in 0..20 {
        let mut request = queue.flush(CompletionMode::Call);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        while Pin::new(&mut request)
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            readiness.drive();
            request = queue.flush(CompletionMode::Call);
        }
        assert!(readable(&readiness, HUNG), "no call");
        let opened = queue.channel(other.point()).unwrap();
        while !woken.0.load(Ordering::Relaxed) {
            assert!(readable(&readiness, HUNG), "a lost wake-up");
            readiness.drive();
        }
        assert_eq!(request.wait(), Ok(()));
        drop(opened);
    }
    drop((readiness, queue, driver));
    served.join();
}

#[test]
fn an_owner_of_two_channels_sleeps_over_either() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let mut sleeper = Sleeper::new().unwrap();
    let mut channels = [(); 2].map(|()| queue.channel(sleeper.point()).unwrap());
    for turn in [0, 1, 0, 1] {
        is_called(&mut channels[turn], &sleeper);
        wakes(&mut channels[turn], &mut sleeper);
    }
    drop((channels, queue, driver));
    served.join();
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the user's");
    }
}

#[test]
fn a_waker_that_panics_takes_no_wake_up_from_others() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let woken = Arc::new(Woken::default());
    let wakers = [Arc::new(Panics).into(), Arc::clone(&woken).into()];
    for _ in 0..50 {
        woken.0.store(false, Ordering::Relaxed);
        let mut requests = [(); 2].map(|()| queue.flush(CompletionMode::Call));
        let polled = requests.iter_mut().zip(&wakers).map(|(request, waker)| {
            let mut context = Context::from_waker(waker);
            // It reaps for both.
            let poll = || Pin::new(request).poll(&mut context);
            catch_unwind(AssertUnwindSafe(poll)).is_ok_and(|poll| poll.is_pending())
        });
        let pending: Vec<_> = polled.collect();
        while !requests.iter_mut().all(|request| {
            let done = || request.is_done();
            catch_unwind(AssertUnwindSafe(done)).unwrap_or(false)
        }) {}
        assert!(
            !pending[1] || woken.0.load(Ordering::Relaxed),
            "a lost wake-up"
        );
    }
    drop((queue, driver));
    served.join();
}

/// The thread that sits where the device calls is killed by a task's waker: another one takes the seat.
#[test]
fn a_thread_that_a_waker_kills_leaves_its_seat() {
    let served = Served::disk("fault:delay=1s,op=flush,on=memory:size=1M", 1);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let (ended, has_ended) = channel();
    let threads = [(); 2].map(|()| {
        let (queue, ended) = (queue.clone(), ended.clone());
        std::thread::spawn(move || {
            let flushed = queue.flush(CompletionMode::Call).wait();
            ended.send(flushed).unwrap();
        })
    });
    while queue.counters().sleeps < 2 {
        std::thread::yield_now();
    }
    let waker = Arc::new(Panics).into();
    let mut task = queue.serial(CompletionMode::Call);
    while Pin::new(&mut task)
        .poll(&mut Context::from_waker(&waker))
        .is_ready()
    {
        task = queue.serial(CompletionMode::Call);
    }
    assert_eq!(
        has_ended.recv_timeout(HUNG),
        Ok(Ok(())),
        "nobody took the seat"
    );
    let killed = threads.map(|thread| thread.join().is_err());
    assert_ne!(killed[0], killed[1]);
    drop((task, queue, driver));
    served.join();
}

/// The program of the report: one thread waits for request after request, others open channels.
#[test]
fn nobody_sleeps_for_ever_while_channels_come_and_go() {
    const REQUESTS: usize = 20_000;
    const OPENED: usize = 100_000;
    // A worker that sleeps at once has the waiter sleep as well.
    let tuning = Tuning::default().polling(Polling::Never);
    let served = Served::tuned("memory:size=1M", 1, tuning);
    let driver = one_queue(&served);
    let queue = driver.queue(0).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let opener = std::thread::spawn({
        let (queue, over) = (queue.clone(), Arc::clone(&over));
        move || {
            let sleeper = Sleeper::new().unwrap();
            let point = sleeper.point();
            // They stay until the end: one that goes looks at the ring.
            let mut opened = Vec::new();
            while opened.len() < OPENED && !over.load(Ordering::Relaxed) {
                opened.push(queue.channel(point).unwrap());
                (0..500).for_each(|_| std::hint::spin_loop());
            }
            while !over.load(Ordering::Relaxed) {
                std::thread::park();
            }
        }
    });
    let ended = Arc::new(AtomicUsize::new(0));
    let (finished, is_finished) = channel();
    let waiter = std::thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            for _ in 0..REQUESTS {
                queue.flush(CompletionMode::Call).wait().unwrap();
                ended.fetch_add(1, Ordering::Relaxed);
            }
            drop(queue);
            finished.send(()).unwrap();
        }
    });
    let mut before = 0;
    while is_finished.recv_timeout(HUNG) == Err(RecvTimeoutError::Timeout) {
        let now = ended.load(Ordering::Relaxed);
        assert_ne!(now, before, "asleep over request {now}, which has ended");
        before = now;
    }
    over.store(true, Ordering::Relaxed);
    opener.thread().unpark();
    waiter.join().unwrap();
    opener.join().unwrap();
    drop(driver);
    served.join();
}
