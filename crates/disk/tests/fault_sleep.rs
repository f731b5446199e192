//! A thread that sleeps over a `fault:` disk is woken for what is late, and never for what never ends.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use common::faulty::{faulty, file, memory, over};
use common::owner::Owner;
use pollux_disk::{Disk, Op, Queued, Request, Ticket};
use pollux_disk_conformance::{Buffer, Client, read, write};

/// What ends of a read, another one and a write, which is later.
fn late(below: Arc<dyn Disk>) -> Vec<Ticket> {
    let disk = over(below, "delay=20ms,delay=5ms,op=write");
    let mut owner = Owner::new(&disk);
    let buffers = [(); 3].map(|()| Buffer::new(512));
    owner.queue(0, read(0, &buffers[0]));
    owner.queue(1, read(0, &buffers[1]));
    owner.queue(2, write(0, &buffers[2]));
    // Only the timer ends the last of these sleeps.
    let (ended, slept) = owner.sleep_until_ended(3);
    assert!(slept > 0);
    assert!(ended.iter().all(|done| done.result == Ok(())));
    owner.is_idle();
    ended.iter().map(|done| done.ticket).collect()
}

#[test]
fn what_is_late_ends_the_sleep_of_its_owner_and_comes_in_order() {
    assert_eq!(late(memory(1 << 20)), [0, 1, 2].map(Ticket));
}

#[test]
fn what_is_late_is_so_over_a_disk_that_takes_its_time_too() {
    let mut ended = late(file());
    ended.sort_unstable_by_key(|ticket| ticket.0);
    assert_eq!(ended, [0, 1, 2].map(Ticket));
}

#[test]
fn a_request_that_is_never_answered_holds_up_no_other() {
    let disk = faulty("hang=request,op=flush,times=1");
    let mut owner = Owner::new(&disk);
    owner.queue(0, Op::Flush);
    let at_once = owner.channel.queue(Request {
        ticket: Ticket(1),
        op: Op::Flush,
    });
    assert_eq!(at_once, Queued::Done(Ok(())));
    owner.is_idle();
}

#[test]
fn a_device_that_hangs_answers_nothing_on_any_channel() {
    let below = memory(1 << 20);
    let disk = over(
        Arc::clone(&below) as _,
        "delay=1us,op=read,hang=device,op=flush,after=2",
    );
    let mut owners = [(); 2].map(|()| Owner::new(&disk));
    let buffer = Buffer::holding(&[7; 512]);
    owners[1].queue(0, read(0, &buffer));
    let mut client = Client::new(&disk);
    for _ in 0..2 {
        assert_eq!(client.run(Op::Flush), Ok(()));
    }
    owners[0].queue(1, Op::Flush);
    for owner in &mut owners {
        // Neither what was late, nor what comes.
        owner.is_idle();
        owner.queue(2, write(0, &buffer));
        owner.is_idle();
    }
    let stored = Client::new(&*below).read_bytes(0, 512);
    assert_eq!(stored, [0; 512], "it does not even reach the disk below");
}

#[test]
fn a_channel_with_requests_that_never_end_can_be_dropped() {
    for below in [memory(1 << 20) as Arc<dyn Disk>, file()] {
        let disk = over(below, "hang=device,after=1");
        let mut owner = Owner::new(&disk);
        let buffer = Buffer::new(512);
        let ticket = Ticket(0);
        let op = write(0, &buffer);
        let before = owner.channel.queue(Request { ticket, op });
        owner.channel.submit();
        if before == Queued::Pending {
            owner.sleep_until_ended(1);
        }
        owner.queue(1, write(0, &buffer));
        owner.is_idle();
        drop(owner);
    }
    // Here the disk below still works on it.
    let disk = over(file(), "torn=512,then=hang");
    let buffer = Buffer::new(1 << 20);
    let mut owner = Owner::new(&disk);
    owner.queue(0, write(0, &buffer));
    drop(owner);
}

#[test]
fn after_a_power_cut_a_part_is_stored_and_nobody_was_told() {
    let below = memory(1 << 20);
    let disk = over(Arc::clone(&below) as _, "torn=1K,then=hang,after=1");
    let mut owner = Owner::new(&disk);
    let buffer = Buffer::holding(&[7; 4096]);
    assert_eq!(Client::new(&disk).run(write(0, &buffer)), Ok(()));
    owner.queue(0, write(8192, &buffer));
    owner.queue(1, write(16384, &buffer));
    owner.is_idle();
    let stored = Client::new(&*below).read_bytes(8192, 8192 + 4096);
    assert!(stored[..1024].iter().all(|&byte| byte == 7));
    assert!(stored[1024..].iter().all(|&byte| byte == 0));
}
