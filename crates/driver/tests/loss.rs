//! The device goes, or answers nothing any more, while everybody waits for it in every way: all are told.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use common::Served;
use pollux_blk::feature;
use pollux_disk::wait::Sleeper;
use pollux_disk::{
    Armed, Channel, Disk, Durability, Event, Failure, Op, Options as DiskOptions, PollScope,
    Queued, Request, Spec, Ticket,
};
use pollux_driver::{
    Buffer, CompletionMode, Driver, Experiment, Hybrid, Lost, Options, Pending, Queue, Reconnect,
    Waiter, Waiting,
};
use pollux_memory::{Loan, Region};

/// Longer than anything takes to be told.
const HUNG: Duration = Duration::from_secs(20);

/// A disk that answers nothing. Its session never ends, so its thread is not waited for.
fn silent() -> Served {
    Served::disk("fault:hang=device,on=memory:size=1M", 1)
}

/// With room for two requests.
fn narrow() -> Options {
    Options::default()
        .queue_size(8)
        .reconnect(Reconnect::Never)
        .experiment(Experiment {
            without: feature::INDIRECT_DESC,
            ..Experiment::default()
        })
}

fn read(driver: &Driver, queue: &Queue, completion: CompletionMode) -> Pending<Buffer> {
    queue.read(0, driver.allocate(4096).unwrap(), completion)
}

fn is_told(mut channel: impl Hybrid, mut waiter: Waiter, driver: &Driver, submitted: &Barrier) {
    let buffer = driver.allocate(4096).unwrap();
    // SAFETY: the buffer is kept until the end of the test.
    let list = Loan::first(&[unsafe { buffer.span() }], u64::MAX);
    let durability = Durability::Stable;
    // SAFETY: the list ends when nothing is in flight.
    let from = unsafe { list.spans() };
    let write = Op::Write {
        at: 0,
        from,
        durability,
    };
    let request = |ticket| Request {
        ticket: Ticket(ticket),
        op: write,
    };
    for ticket in 0..4 {
        let queued = channel.queue_as(request(ticket), CompletionMode::Polled);
        assert_eq!(queued, Queued::Pending);
    }
    channel.submit();
    submitted.wait();
    let mut told = 0;
    while told < 4 {
        let done = &mut |done: pollux_disk::Completion| assert_eq!(done.result, Err(Failure::Lost));
        told += waiter.wait(&mut channel, None, done).unwrap();
    }
    // From now on nothing is there to wait for, and what comes is told at once.
    assert_eq!(channel.arm(), Armed::Idle);
    match channel.queue_as(request(4), CompletionMode::Call) {
        Queued::Done(result) => assert_eq!(result, Err(Failure::Lost)),
        Queued::Pending => {
            channel.submit();
            let done = &mut |done: pollux_disk::Completion| {
                assert_eq!(done.result, Err(Failure::Lost));
            };
            assert_eq!(waiter.wait(&mut channel, None, done).unwrap(), 1);
        }
    }
    drop(channel);
    list.end();
}

#[test]
fn everybody_is_told_that_the_server_has_gone() {
    let lost = everybody_is_told(Reconnect::Never, |served, _| served.hang_up());
    assert_eq!(lost, Lost::Closed);
}

#[test]
fn everybody_is_told_that_the_server_has_not_come_back() {
    let within = Duration::from_millis(100);
    let lost = everybody_is_told(Reconnect::Within(within), |served, _| served.hang_up());
    assert!(
        matches!(lost, Lost::Away { within: told, .. } if told == within),
        "{lost}"
    );
}

#[test]
fn everybody_is_told_that_the_server_is_not_waited_for() {
    let while_away = |served: &Served, driver: &Driver| {
        served.hang_up();
        driver.give_up();
    };
    assert_eq!(
        everybody_is_told(Reconnect::Always, while_away),
        Lost::GivenUp
    );
    let before = |served: &Served, driver: &Driver| {
        driver.give_up();
        served.hang_up();
    };
    assert_eq!(everybody_is_told(Reconnect::Always, before), Lost::GivenUp);
}

fn everybody_is_told(reconnect: Reconnect, goes: impl FnOnce(&Served, &Driver)) -> Lost {
    let served = silent();
    let driver = served.connect(&narrow().reconnect(reconnect));
    let queue = driver.queue(0).unwrap();
    let waiter = |waiting| Waiter::new(waiting).unwrap();
    let own = [Waiting::Call, Waiting::Polled].map(waiter);
    let shared = [Waiting::Call, Waiting::Polled].map(waiter);
    let submitted = Barrier::new(5);
    thread::scope(|scope| {
        let (driver, queue, submitted) = (&driver, &queue, &submitted);
        let wait = |completion| {
            move || {
                let result = read(driver, queue, completion).wait();
                assert_eq!(result.unwrap_err().failure, Failure::Lost);
            }
        };
        // Two are in flight, and the others wait for room.
        for completion in [CompletionMode::Call, CompletionMode::Polled].repeat(2) {
            scope.spawn(wait(completion));
        }
        scope.spawn(|| {
            let mut pending = read(driver, queue, CompletionMode::Polled);
            while !pending.is_done() {
                thread::yield_now();
            }
            assert_eq!(pending.wait().unwrap_err().failure, Failure::Lost);
        });
        for waiter in own {
            let channel = driver.channel(waiter.point()).unwrap();
            scope.spawn(move || is_told(channel, waiter, driver, submitted));
        }
        for waiter in shared {
            let channel = queue.channel(waiter.point()).unwrap();
            scope.spawn(move || is_told(channel, waiter, driver, submitted));
        }
        submitted.wait();
        // Two of the channels and four of the threads go to sleep at some time.
        while queue.counters().sleeps < 5 {
            thread::yield_now();
        }
        goes(&served, driver);
    });
    let lost = driver.lost().unwrap();
    assert!(driver.retired() > 0, "what was in flight");
    let late = read(&driver, &queue, CompletionMode::Call);
    assert_eq!(late.wait().unwrap_err().failure, Failure::Lost);
    let error = driver.queue(1).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    lost
}

#[test]
fn a_request_that_was_dropped_keeps_its_memory_from_a_device_that_may_still_write_to_it() {
    let served = Served::disk("fault:hang=request,op=read,on=memory:size=1M", 1);
    let options = Options::default().patience(Duration::from_millis(50));
    let driver = served.connect(&options.reconnect(Reconnect::Never));
    let queue = driver.queue(0).unwrap();
    let mut pending = read(&driver, &queue, CompletionMode::Call);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut pending).poll(&mut context).is_pending());
    drop(pending);
    // The device takes requests in their order, so it has that read.
    queue.flush(CompletionMode::Call).wait().unwrap();
    assert_eq!(driver.retired(), 0);
    drop(queue);
    // To drop a queue waits for what is in flight, but not for ever.
    let lost = driver.lost();
    assert!(matches!(lost, Some(Lost::Silent { .. })), "{lost:?}");
    assert!(driver.retired() > 4096, "the request's, and the ring's");
}

#[test]
fn a_queue_that_is_let_go_of_ends_what_was_dropped_and_can_be_taken_again() {
    let served = Served::disk("fault:delay=20ms,on=memory:size=1M", 1);
    let driver = served.connect(&narrow());
    for round in 0..4u8 {
        let queue = driver.queue(0).unwrap();
        for _ in 0..6 {
            drop(queue.write(
                u64::from(round) * 512,
                vec![round; 512],
                Durability::Stable,
                CompletionMode::Polled,
            ));
        }
        let waiter = Waiter::new(Waiting::Call).unwrap();
        let mut channel = queue.channel(waiter.point()).unwrap();
        for ticket in 0..6 {
            let ticket = Ticket(ticket);
            let op = Op::Flush;
            let _pending = channel.queue_as(Request { ticket, op }, CompletionMode::Call);
        }
        channel.submit();
        assert_eq!(channel.arm(), Armed::Idle);
        // Both with requests in flight, and in the backlog.
        drop((channel, queue));
    }
    assert_eq!((driver.lost(), driver.retired()), (None, 0));
    drop(driver);
    served.join();
}

/// A waker that, when it is woken or dropped, has business with the queue itself.
#[test]
fn a_waker_may_use_the_queue_it_is_woken_by() {
    use std::task::Wake;
    struct Busy(Queue);
    impl Wake for Busy {
        fn wake(self: Arc<Self>) {
            self.0.drive();
        }
    }
    impl Drop for Busy {
        fn drop(&mut self) {
            drop(self.0.flush(CompletionMode::Polled));
        }
    }
    let served = Served::disk("fault:delay=5ms,on=memory:size=1M", 1);
    let driver = served.connect(&narrow());
    let queue = driver.queue(0).unwrap();
    let busy = || Waker::from(Arc::new(Busy(queue.clone())));
    for _ in 0..4 {
        let mut all: Vec<_> = (0..4)
            .map(|_| read(&driver, &queue, CompletionMode::Polled))
            .collect();
        // Twice, so that each waker is replaced; the last two wait for room.
        for _ in 0..2 {
            // One that has ended by now has told so.
            all.retain_mut(|pending| {
                let polled = Pin::new(pending).poll(&mut Context::from_waker(&busy()));
                polled.is_pending()
            });
        }
        all.pop();
        drop(all.pop());
        for pending in all {
            pending.wait().unwrap();
        }
    }
    drop((queue, driver));
    served.join();
}

/// Listeners are called on the thread that notices the loss: it goes on, and tells the next one.
#[test]
fn a_listener_that_panics_keeps_nobody_from_hearing_of_the_loss() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let spec = format!("file:path={},lock=running", image.path().display());
    let served = Served::devices([spec.leak()]);
    let driver = served.connect(&Options::default());
    let (told, is_told) = channel();
    let _both = [(); 2].map(|()| {
        let told = told.clone();
        driver.events().subscribe(move |event| {
            told.send(event).unwrap();
            panic!("{event:?}: a listener of the user's");
        })
    });
    for size in [2 << 20, 3 << 20] {
        image.as_file().set_len(size).unwrap();
        served.hang_up();
        let both = [(); 2].map(|()| is_told.recv_timeout(HUNG));
        assert_eq!(both, [Ok(Event::Changed); 2]);
        assert_eq!(driver.geometry().bytes, size);
    }
}

/// A page of registered memory is gone when it is touched, so that from then on the server sees the file, and this
/// process zeroes of its own.
#[test]
fn a_request_in_registered_memory_that_is_gone_is_not_told_as_done() {
    const BLOCK: usize = 4096;
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let queue = driver.queue(0).unwrap();
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(2 * BLOCK as u64).unwrap();
    let (own, len) = (file.try_clone().unwrap(), 2 * BLOCK as u64);
    let mut first = driver.register(own, 0, len).unwrap();
    let mut second = first.split_off(BLOCK);
    first.write(0, &[1; BLOCK]);
    file.set_len(BLOCK as u64).unwrap();
    second.write(0, &[2; BLOCK]);
    file.set_len(2 * BLOCK as u64).unwrap();
    first.write(0, &[3; BLOCK]);
    let write = queue.write(0, first, Durability::Volatile, CompletionMode::Call);
    let failed = write.wait().unwrap_err();
    assert_eq!(failed.failure, Failure::Lost);
    assert_eq!(driver.lost(), Some(Lost::Memory));
    let read = || second.read(0, &mut [0; BLOCK]);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_err();
    // A device that does not know it is given a copy.
    let elsewhere = Served::disk("memory:size=1M", 1);
    let copies = elsewhere.connect(&Options::default());
    let third = copies.queue(0).unwrap();
    let write = third.write(0, second, Durability::Volatile, CompletionMode::Call);
    let failed = write.wait().unwrap_err();
    assert!(matches!(failed.failure, Failure::Io(_)), "{failed:?}");
    assert_eq!(copies.lost(), None);
    drop((queue, driver, third, copies));
    served.join();
    elsewhere.join();
}

/// A leg that is gone fails what reaches it, and takes nothing else with it.
#[test]
fn a_disk_that_is_gone_is_still_a_part_of_others() {
    const LEG: u64 = 1 << 20;
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default().reconnect(Reconnect::Never));
    let memory = "memory:size=1M".parse::<Spec>().unwrap();
    let memory = memory.open(&DiskOptions::default()).unwrap();
    let legs: Vec<Arc<dyn Disk>> = vec![memory, Arc::new(driver.clone())];
    let stack = pollux_disk::linear(legs, PollScope::default()).unwrap();
    served.hang_up();
    served.join();
    let region = pollux_memory::memfd("test", 4096).unwrap();
    let region = Arc::new(Region::map(region, 0, 0, 0, 4096).unwrap());
    // Twice: when the loss is new, and when it is known.
    for _ in 0..2 {
        stack.map(&region).unwrap();
        let sleeper = Sleeper::new().unwrap();
        let mut channel = stack.open_channel(sleeper.point()).unwrap();
        for (at, expected) in [(0, Ok(())), (LEG, Err(Failure::Lost))] {
            // SAFETY: the region is kept until the end of the test.
            let list = Loan::first(&[unsafe { region.span() }], u64::MAX);
            // SAFETY: the list ends when nothing is in flight.
            let into = unsafe { list.spans() };
            let (ticket, op) = (Ticket(at), Op::Read { at, into });
            assert_eq!(
                channel.queue(Request { ticket, op }),
                Queued::Done(expected)
            );
            list.end();
        }
        assert_eq!(channel.arm(), Armed::Idle);
        drop(channel);
        stack.unmap(&region);
        while driver.lost().is_none() {
            thread::yield_now();
        }
    }
}
