//! Each way to use a disk, against our own device end.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::error::Error;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::Served;
use pollux_disk::{Channel, Disk, Durability, Failure, Op, Queued, Request, Ticket, Unmap};
use pollux_driver::{CompletionMode, Hybrid, Options, Waiter, Waiting};
use pollux_memory::{Loan, Spans};
use rustix::io::Errno;

const ALL: [Waiting; 3] = [Waiting::Polled, Waiting::Call, Waiting::Adaptive];

#[test]
fn a_channel_reads_what_it_wrote_however_it_waits() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    for waiting in ALL {
        for completion in [CompletionMode::Polled, CompletionMode::Call] {
            let mut waiter = Waiter::new(waiting).unwrap();
            let mut channel = driver.channel(waiter.point()).unwrap();
            let mut buffer = driver.allocate(4096).unwrap();
            buffer.write(0, &[7; 4096]);
            // SAFETY: the buffer is kept until the channel is gone, with nothing in flight.
            let list = Loan::first(&[unsafe { buffer.span() }], u64::MAX);
            // SAFETY: the list ends after the channel.
            let spans = unsafe { list.spans() };
            let (from, into) = (spans, spans);
            let durability = Durability::Volatile;
            for op in [
                Op::Write {
                    at: 8192,
                    from,
                    durability,
                },
                Op::Flush,
                Op::Read { at: 8192, into },
            ] {
                let ticket = Ticket(3);
                let queued = channel.queue_as(Request { ticket, op }, completion);
                assert_eq!(queued, Queued::Pending);
                channel.submit();
                let mut ended = None;
                // As good as none.
                let timeout = Some(Duration::MAX);
                let count = waiter
                    .wait(&mut channel, timeout, &mut |done| ended = Some(done))
                    .unwrap();
                assert_eq!((count, ended.unwrap().result), (1, Ok(())), "{op:?}");
                if matches!(op, Op::Flush) {
                    buffer.write(0, &[0; 4096]);
                }
            }
            let mut bytes = [0; 4096];
            buffer.read(0, &mut bytes);
            assert!(bytes == [7; 4096], "{waiting:?} {completion:?}");
            drop(channel);
            list.end();
        }
    }
    drop(driver);
    served.join();
}

/// The lender of a list may do with it as it likes, once it was told of the end.
#[test]
fn what_a_request_was_lent_is_not_looked_at_once_it_has_ended() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let mut waiter = Waiter::new(Waiting::Polled).unwrap();
    let mut channel = driver.channel(waiter.point()).unwrap();
    let buffers = [512, 1024].map(|len| driver.allocate(len).unwrap());
    // SAFETY: the buffers are kept until the end of the test.
    let [lent, other] = buffers.each_ref().map(|buffer| unsafe { buffer.span() });
    let mut list = [lent];
    // SAFETY: the list is kept as it is until the request has ended, below.
    let into = unsafe { Spans::new(&list) };
    let (ticket, op) = (Ticket(3), Op::Read { at: 0, into });
    assert_eq!(channel.queue(Request { ticket, op }), Queued::Pending);
    channel.submit();
    assert_eq!(waiter.wait(&mut channel, None, &mut |_| ()).unwrap(), 1);
    list[0] = other;
    let shown = format!("{channel:?}");
    assert!(!shown.contains(&format!("{:?}", list[0])), "{shown}");
    drop(channel);
    drop((buffers, driver));
    served.join();
}

#[test]
fn a_shared_queue_serves_every_way_to_wait() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let queue = driver.queue(0).unwrap();
    for completion in [CompletionMode::Polled, CompletionMode::Call] {
        let written = queue.write(0, vec![9; 1024], Durability::Stable, completion);
        assert_eq!(written.wait().unwrap(), vec![9; 1024]);
        let mut read = queue.read(512, vec![0; 1024], completion);
        while !read.is_done() {
            std::hint::spin_loop();
        }
        let read = read.wait().unwrap();
        assert!(read[..512] == [9; 512] && read[512..] == [0; 512]);
        let zeroed = queue.write_zeroes(0, 512, Unmap::Allowed, Durability::Stable, completion);
        zeroed.wait().unwrap();
        let mut read = queue.read(0, driver.allocate(512).unwrap(), completion);
        let readiness = queue.readiness().unwrap();
        let buffer = loop {
            match std::pin::Pin::new(&mut read).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(buffer) => break buffer.unwrap(),
                Poll::Pending => {
                    let mut fds = [rustix::event::PollFd::new(
                        &readiness,
                        rustix::event::PollFlags::IN,
                    )];
                    rustix::event::poll(&mut fds, None).unwrap();
                    readiness.drive();
                }
            }
        };
        let mut bytes = [1; 512];
        buffer.read(0, &mut bytes);
        assert!(bytes == [0; 512]);
        let serial = queue.serial(completion).wait().unwrap();
        assert_eq!(&serial[..], b"a-serial-number\0\0\0\0\0");
    }
    drop((queue, driver));
    served.join();
}

#[test]
fn a_driver_is_a_disk_with_the_geometry_of_the_other_end() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let theirs = served.device.disk().geometry();
    let ours = driver.geometry();
    assert_eq!(
        (ours.bytes, ours.block, ours.access),
        (theirs.bytes, theirs.block, theirs.access)
    );
    assert_eq!(
        ours.discard.map(|limits| limits.max_bytes),
        theirs.discard.map(|limits| limits.max_bytes)
    );
    assert_eq!(driver.server(), Some(std::process::id()));
    drop(driver);
    served.join();
}

#[test]
fn one_that_comes_as_the_last_handle_goes_waits_for_the_queue() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default().queues(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let queue = driver.queue(0).unwrap();
                    queue.flush(CompletionMode::Polled).wait().unwrap();
                }
            });
        }
    });
    drop(driver);
    served.join();
}

#[test]
fn what_fails_gives_its_memory_back() {
    let served = Served::disk("fault:error=EIO,on=memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let queue = driver.queue(0).unwrap();

    let mut buffer = driver.allocate(4096).unwrap();
    buffer.write(0, b"mine");
    let write = queue.write(0, buffer, Durability::Volatile, CompletionMode::Call);
    let failed = write.wait().unwrap_err();
    assert_eq!(failed.failure, Failure::Io(Errno::IO));
    let cause = failed.source().and_then(Error::source);
    assert_eq!(cause.unwrap().to_string(), Errno::IO.to_string());
    let mut kept = [0; 4];
    failed.data.unwrap().read(0, &mut kept);
    assert_eq!(&kept, b"mine");

    // Known to fail before the device is asked.
    let beyond = driver.geometry().bytes;
    let read = queue.read(beyond, vec![0; 512], CompletionMode::Polled);
    let failed = read.wait().unwrap_err();
    assert_eq!(failed.data.as_deref(), Some(&[0; 512][..]));
    let error = std::io::Error::from(failed);
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    drop((queue, driver));
    served.join();
}
