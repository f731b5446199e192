//! A device that is gone, or slow, may still write to the memory that it was lent: that is nobody else's.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use driver_cases::exhaust::{exhaust, overlap};
use driver_cases::losing::{holding, never};
use driver_cases::patiently;
use pollux_disk::{Failure, Op, Queued, Request, Ticket};
use pollux_driver::{CompletionMode, Driver, Hybrid, Options, Waiter, Waiting};
use pollux_memory::Spans;
use pollux_tests::backend::{Backend, Conduct, Held, Lie, Plan};
use pollux_tests::drive::PATIENCE;
use pollux_tests::process::eventually;

const BLOCK: usize = 4096;

/// The future is gone, but not its buffer: not before the device has ended its request.
#[test]
fn the_buffer_of_a_dropped_future_is_nobodys_until_its_request_has_ended() {
    let backend = holding(Plan::default());
    let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
    let queue = driver.queue(0).unwrap();
    drop(queue.read(0, driver.allocate(BLOCK).unwrap(), CompletionMode::Polled));
    drop(queue.read(0, vec![0; BLOCK], CompletionMode::Call));
    let held = backend.wait_for_held(2);
    backend.scribble(Some(0x5a));

    let (mut all, error) = exhaust(&driver);
    println!("{} buffers, then: {error}", all.len());
    assert_eq!(overlap(&held, &all), None);
    for buffer in &mut all {
        buffer.write(0, &vec![0x11; buffer.len()]);
    }
    backend.wait_for_scribbles();
    for buffer in &all {
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes);
        assert!(
            bytes.iter().all(|byte| *byte == 0x11),
            "{buffer:?} is written to"
        );
    }

    backend.scribble(None);
    backend.conduct(Conduct::Prompt);
    backend.wait_until(|seen| seen.ended == 2);
    // Counted before it is published.
    backend.settle();
    eventually(|| queue.poll() == 0, || "there is always more".into());
    let back = [(); 2].map(|()| driver.allocate(BLOCK).unwrap());
    assert!(overlap(&held, &back).is_some(), "it has come back");
    backend.end();
}

/// Those who have requests in flight when a device goes that can still write.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Handles,
    SharedChannel,
    OwnChannel,
}

/// The device is gone, but can still write: what it might write to is never handed out again.
fn retires(victim: Victim, wrong: impl FnOnce(&Backend) + Send + 'static) {
    patiently(move || {
        let backend = holding(Plan::default());
        let driver = Driver::connect(backend.socket(), &never()).unwrap();
        let wrong = |count: usize| {
            let held = backend.wait_for_held(count);
            backend.scribble(Some(0x5a));
            wrong(&backend);
            held
        };
        let held = match victim {
            Victim::Handles => lose_handles(&driver, wrong),
            Victim::SharedChannel => {
                let waiter = Waiter::new(Waiting::Adaptive).unwrap();
                let channel = driver.queue(0).unwrap().channel(waiter.point());
                lose_channel(&driver, channel.unwrap(), waiter, wrong)
            }
            Victim::OwnChannel => {
                let waiter = Waiter::new(Waiting::Adaptive).unwrap();
                let channel = driver.channel(waiter.point());
                lose_channel(&driver, channel.unwrap(), waiter, wrong)
            }
        };
        assert!(driver.lost().is_some());
        let (mut all, error) = exhaust(&driver);
        println!("{victim:?}: {} buffers, then: {error}", all.len());
        assert_eq!(overlap(&held, &all), None);
        for buffer in &mut all {
            buffer.write(0, &vec![0x11; buffer.len()]);
        }
        backend.wait_for_scribbles();
        for buffer in &all {
            let mut bytes = vec![0; buffer.len()];
            buffer.read(0, &mut bytes);
            let untouched = bytes.iter().all(|byte| *byte == 0x11);
            assert!(untouched, "{buffer:?} is written to");
        }
        drop((all, driver));
        // Its mapping of the memory is its own: it is still there.
        backend.wait_for_scribbles();
    });
}

/// Requests of every kind, some of which nobody waits for; the device goes by `wrong`.
fn lose_handles(driver: &Driver, wrong: impl FnOnce(usize) -> Vec<Held>) -> Vec<Held> {
    let queue = driver.queue(0).unwrap();
    let mut waiting = vec![];
    for completion in [CompletionMode::Polled, CompletionMode::Call] {
        drop(queue.read(0, driver.allocate(BLOCK).unwrap(), completion));
        drop(queue.read(0, vec![0; BLOCK], completion));
        waiting.push(queue.read(0, driver.allocate(BLOCK).unwrap(), completion));
    }
    let lists = [(); 3].map(|()| driver.allocate(BLOCK).unwrap());
    let list = queue.read(0, Vec::from(lists), CompletionMode::Call);
    let held = wrong(7);
    for read in waiting {
        assert_eq!(read.wait().unwrap_err().failure, Failure::Lost);
    }
    assert_eq!(list.wait().unwrap_err().failure, Failure::Lost);
    assert!(driver.retired() >= 9 * BLOCK as u64, "{}", driver.retired());
    held
}

/// A request of a channel, whose owner gives its buffer back when it hears of the loss.
fn lose_channel(
    driver: &Driver,
    mut channel: impl Hybrid,
    mut waiter: Waiter,
    wrong: impl FnOnce(usize) -> Vec<Held>,
) -> Vec<Held> {
    let buffer = driver.allocate(BLOCK).unwrap();
    // SAFETY: the buffer is kept until the request has ended, below.
    let list = [unsafe { buffer.span() }];
    // SAFETY: the list stays until the request has ended, below.
    let into = unsafe { Spans::new(&list) };
    let request = Request {
        ticket: Ticket(1),
        op: Op::Read { at: 0, into },
    };
    assert_eq!(channel.queue(request), Queued::Pending);
    channel.submit();
    let held = wrong(1);
    let mut results = vec![];
    let mut done = |one: pollux_disk::Completion| results.push(one.result);
    let ended = waiter
        .wait(&mut channel, Some(PATIENCE), &mut done)
        .unwrap();
    assert_eq!((ended, results), (1, vec![Err(Failure::Lost)]));
    held
}

const VICTIMS: [Victim; 3] = [Victim::Handles, Victim::SharedChannel, Victim::OwnChannel];

#[test]
fn memory_that_a_liar_may_write_to_is_retired() {
    for victim in VICTIMS {
        retires(victim, |backend| {
            backend.conduct(Conduct::Lie(Lie::IndexJump(1000)));
        });
    }
}

#[test]
fn memory_that_a_device_without_connection_may_write_to_is_retired() {
    for victim in VICTIMS {
        retires(victim, Backend::hang_up);
    }
}
