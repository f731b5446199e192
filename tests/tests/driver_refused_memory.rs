//! A server that comes back does not take memory that the one before took: requests in it are copied, and no
//! frontend that shared it takes the disk from others.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::fs::File;
use std::sync::Arc;

use driver_cases::patiently;
use pollux_disk::{Channel as _, Disk as _, Durability, Op, Queued, Request, Ticket};
use pollux_driver::{Channel, CompletionMode, Driver, Hybrid as _, Options, Waiter, Waiting};
use pollux_memory::{Alarm, Loan, Region, Span};
use pollux_tests::backend::{Backend, Conduct, Plan, protocol};
use pollux_tests::process::eventually;
use rustix::fs::{MemfdFlags, memfd_create};

const BLOCK: usize = 4096;
/// More than the driver's own memory.
const LARGE: u64 = 2 << 30;

/// Sparse memory, and what it is made of.
fn region() -> (Region, File) {
    let file = File::from(memfd_create("user", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(LARGE).unwrap();
    let copy = file.try_clone().unwrap();
    (Region::map(file, 0, 0, 0, LARGE).unwrap(), copy)
}

/// The server is `next` from now on.
fn takes_over(next: &Backend, last: &Backend) {
    std::fs::rename(next.socket(), last.socket()).unwrap();
    last.hang_up();
}

fn ends(channel: &mut Channel, waiter: &mut Waiter) {
    let ended = waiter.wait(channel, None, &mut |done| assert_eq!(done.result, Ok(())));
    assert_eq!(ended.unwrap(), 1);
}

fn submit(channel: &mut Channel, op: Op) {
    let request = Request {
        ticket: Ticket(0),
        op,
    };
    let queued = channel.queue_as(request, CompletionMode::Call);
    assert_eq!(queued, Queued::Pending);
    channel.submit();
}

/// A write is in flight in such memory, and what is written is read back.
fn is_copied(driver: &Driver, last: &Backend, next: &Backend, memory: Span) {
    let mut waiter = Waiter::new(Waiting::Call).unwrap();
    let mut channel = driver.channel(waiter.point()).unwrap();
    let written = Loan::first(&[memory.slice(0, BLOCK).unwrap()], u64::MAX);
    let read = Loan::first(&[memory.slice(BLOCK, BLOCK).unwrap()], u64::MAX);
    memory.slice(0, BLOCK).unwrap().write(&[7; BLOCK]);
    last.conduct(Conduct::Held);
    // SAFETY: the lists end below, when nothing is in flight.
    let from = unsafe { written.spans() };
    // SAFETY: as above.
    let into = unsafe { read.spans() };
    let durability = Durability::Volatile;
    submit(
        &mut channel,
        Op::Write {
            at: 0,
            from,
            durability,
        },
    );
    last.wait_for_held(1);
    takes_over(next, last);
    ends(&mut channel, &mut waiter);
    submit(&mut channel, Op::Read { at: 0, into });
    ends(&mut channel, &mut waiter);
    let mut found = [0; BLOCK];
    memory.slice(BLOCK, BLOCK).unwrap().read(&mut found);
    assert_eq!(found, [7; BLOCK]);
    drop(channel);
    written.end();
    read.end();
}

/// Hands a disk from a server to one that lacks that, and takes less memory.
fn goes_on(without_protocol: u64, ends_over_memory: bool) {
    let last = Plan {
        without_protocol,
        ..Plan::default()
    };
    let next = Plan {
        largest_region: LARGE - 1,
        ends_over_memory,
        ..last.clone()
    };
    let plan = last.clone();
    let [last, next] = [last, next].map(|plan| Backend::start(plan).unwrap());
    let driver = Driver::connect(last.socket(), &Options::default()).unwrap();
    let region = Arc::new(region().0);
    driver.map(&region).unwrap();
    // SAFETY: the region is kept until nothing is in flight.
    is_copied(&driver, &last, &next, unsafe { region.span() });
    assert_eq!((driver.lost(), driver.reconnects()), (None, 1));
    // It is asked once.
    assert_eq!(next.seen().sessions, 1 + usize::from(ends_over_memory));
    let third = Backend::start(plan).unwrap();
    std::fs::rename(third.socket(), last.socket()).unwrap();
    next.hang_up();
    eventually(|| driver.reconnects() == 2, || "it is not back".into());
    // SAFETY: as above.
    is_used_in_place(&driver, &third, unsafe { region.span() });
    driver.unmap(&region);
    drop(driver);
    for backend in [last, next, third] {
        backend.end();
    }
}

/// What the server writes there is seen before the request has ended.
fn is_used_in_place(driver: &Driver, backend: &Backend, memory: Span) {
    let mut waiter = Waiter::new(Waiting::Call).unwrap();
    let mut channel = driver.channel(waiter.point()).unwrap();
    let read = Loan::first(&[memory.slice(0, BLOCK).unwrap()], u64::MAX);
    backend.conduct(Conduct::Held);
    // SAFETY: the list ends below, when nothing is in flight.
    let into = unsafe { read.spans() };
    submit(&mut channel, Op::Read { at: 0, into });
    backend.wait_for_held(1);
    backend.scribble(Some(0x55));
    backend.wait_for_scribbles();
    let mut found = [0; BLOCK];
    memory.slice(0, BLOCK).unwrap().read(&mut found);
    assert!(found == [0x55; BLOCK], "it is copied");
    backend.scribble(None);
    backend.conduct(Conduct::Prompt);
    ends(&mut channel, &mut waiter);
    drop(channel);
    read.end();
}

#[test]
fn requests_go_on_in_memory_that_the_next_server_refuses() {
    for without_protocol in [0, protocol::CONFIGURE_MEM_SLOTS] {
        for ends_over_memory in [false, true] {
            patiently(move || goes_on(without_protocol, ends_over_memory));
        }
    }
}

/// The second takes regions one by one, and the first and third all of them anew.
#[test]
fn a_server_that_takes_its_memory_as_the_first_one_did_is_taken() {
    let whole = Plan {
        without_protocol: protocol::CONFIGURE_MEM_SLOTS,
        ..Plan::default()
    };
    let plans = [whole.clone(), Plan::default(), whole];
    let [first, second, third] = plans.map(|plan| Backend::start(plan).unwrap());
    let driver = Driver::connect(first.socket(), &Options::default()).unwrap();
    let queue = driver.queue(0).unwrap();
    for (reconnects, [next, last]) in (1..).zip([[&second, &first], [&third, &second]]) {
        std::fs::rename(next.socket(), first.socket()).unwrap();
        last.hang_up();
        let is_over = || driver.reconnects() == reconnects || driver.lost().is_some();
        eventually(is_over, || "it is not back".into());
        queue.flush(CompletionMode::Call).wait().unwrap();
    }
    drop((queue, driver));
    for backend in [first, second, third] {
        backend.end();
    }
}

#[test]
fn a_frontend_that_cuts_what_it_shared_is_told_when_the_next_server_comes() {
    let [last, next] = [(); 2].map(|()| Backend::start(Plan::default()).unwrap());
    let driver = Driver::connect(last.socket(), &Options::default()).unwrap();
    let (region, file) = region();
    let alarm = Arc::new(Alarm::silent());
    let region = Arc::new(region.with_alarm(Arc::clone(&alarm)));
    driver.map(&region).unwrap();
    file.set_len(0).unwrap();
    takes_over(&next, &last);
    eventually(|| driver.reconnects() == 1, || "it is not back".into());
    let queue = driver.queue(0).unwrap();
    queue.flush(CompletionMode::Call).wait().unwrap();
    assert_eq!(driver.lost(), None);
    assert!(alarm.is_rung());
    driver.unmap(&region);
    drop((queue, driver));
    last.end();
    next.end();
}

#[test]
fn a_frontend_that_shares_all_that_the_server_takes_has_its_queue() {
    let backend = Backend::start(Plan::default()).unwrap();
    let driver = Driver::connect(backend.socket(), &Options::default()).unwrap();
    // It takes 32.
    let regions = [(); 32].map(|()| Arc::new(region().0));
    for region in &regions {
        driver.map(region).unwrap();
    }
    let queue = driver.queue(0).unwrap();
    queue.flush(CompletionMode::Call).wait().unwrap();
    for region in &regions {
        driver.unmap(region);
    }
    drop((queue, driver));
    backend.end();
}
