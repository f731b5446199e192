//! What becomes of the parts of a request, and of what happens to a leg: over legs that end requests when they are told
//! to.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use common::owner::Owner;
use pollux_disk::stack::Stack;
use pollux_disk::{
    Armed, Channel, Completion, Disk, Durability, Event, Events, Failure, Geometry, Op, PollScope,
    Queued, RangeLimits, Request, Ticket, Unmap, WaitPoint, striped,
};
use pollux_disk_conformance::{Buffer, read, write};
use rustix::io::Errno;

/// A leg that ends requests when it is told to, and has events to tell.
#[derive(Default)]
struct Manual {
    state: Arc<Mutex<ManualState>>,
    events: Events,
}

#[derive(Default)]
struct ManualState {
    bytes: u64,
    asked: Vec<Request>,
    ends: Vec<Completion>,
    looks: usize,
    replacements: u64,
}

struct ManualChannel(Arc<Mutex<ManualState>>);

impl Manual {
    fn new(bytes: u64) -> Arc<Self> {
        let manual = Self::default();
        manual.state.lock().unwrap().bytes = bytes;
        Arc::new(manual)
    }

    /// Ends all that it was asked for.
    fn end(&self, result: Result<(), Failure>) -> usize {
        let state = &mut *self.state.lock().unwrap();
        let ends = state
            .asked
            .drain(..)
            .map(|Request { ticket, .. }| Completion { ticket, result });
        state.ends.extend(ends);
        state.ends.len()
    }

    /// What it was asked for, and has not ended.
    fn asked(&self) -> Vec<Op> {
        let state = self.state.lock().unwrap();
        state.asked.iter().map(|request| request.op).collect()
    }

    fn looks(&self) -> usize {
        std::mem::take(&mut self.state.lock().unwrap().looks)
    }
}

impl Disk for Manual {
    fn geometry(&self) -> Geometry {
        let zeroes = RangeLimits {
            max_bytes: 1 << 20,
            alignment: 512,
        };
        Geometry {
            write_zeroes: Some(zeroes),
            ..Geometry::plain(self.state.lock().unwrap().bytes)
        }
    }

    fn open_channel(&self, _: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(ManualChannel(Arc::clone(&self.state))))
    }

    fn events(&self) -> &Events {
        &self.events
    }
}

// SAFETY: it touches no memory.
unsafe impl Channel for ManualChannel {
    fn queue(&mut self, request: Request) -> Queued {
        self.0.lock().unwrap().asked.push(request);
        Queued::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let mut state = self.0.lock().unwrap();
        state.looks += 1;
        let ends = std::mem::take(&mut state.ends);
        drop(state);
        ends.into_iter().for_each(done);
    }

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }

    fn replacements(&self) -> Option<u64> {
        Some(self.0.lock().unwrap().replacements)
    }
}

/// A stack over legs that end what they are told to, and a channel of it.
struct Rig {
    legs: Vec<Arc<Manual>>,
    disk: Stack,
    owner: Owner,
}

impl Rig {
    fn new(count: usize, scope: PollScope) -> Self {
        let legs: Vec<_> = (0..count).map(|_| Manual::new(1 << 20)).collect();
        let disks = legs
            .iter()
            .map(|leg| Arc::clone(leg) as Arc<dyn Disk>)
            .collect();
        let disk = striped(4096, disks, scope).unwrap();
        Self {
            owner: Owner::new(&disk),
            legs,
            disk,
        }
    }
}

#[test]
fn a_failed_part_fails_the_whole_once_and_after_its_siblings() {
    let buffer = Buffer::new(3 * 4096);
    let mut rig = Rig::new(3, PollScope::OwnInFlight);
    let failed = Err(Failure::Io(Errno::IO));
    for op in [read(0, &buffer), write(0, &buffer), Op::Flush] {
        rig.owner.queue(7, op);
        assert_eq!(rig.legs[1].end(failed), 1);
        assert_eq!(rig.owner.reap(), []);
        assert_eq!(rig.legs[0].end(Ok(())), 1);
        assert_eq!(rig.owner.reap(), []);
        assert_eq!(rig.legs[2].end(Err(Failure::Lost)), 1);
        let (ticket, result) = (Ticket(7), failed);
        assert_eq!(rig.owner.reap(), [Completion { ticket, result }]);
        assert_eq!(rig.owner.reap(), []);
    }
}

/// A write-through guest never flushes.
#[test]
fn the_parts_of_what_is_to_be_stable_are_stable_and_no_others() {
    for durability in [Durability::Volatile, Durability::Stable] {
        let mut rig = Rig::new(3, PollScope::OwnInFlight);
        for chunks in [1, 3] {
            let buffer = Buffer::new(chunks * 4096);
            let (at, from, unmap) = (0, buffer.spans(), Unmap::Allowed);
            let len = from.bytes();
            let write = Op::Write {
                at,
                from,
                durability,
            };
            let zeroes = Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            };
            for op in [write, zeroes] {
                rig.owner.queue(0, op);
                let parts: Vec<Op> = rig.legs.iter().flat_map(|leg| leg.asked()).collect();
                let as_asked = |part: &&Op| match (op, part) {
                    (Op::Write { .. }, Op::Write { durability: of, .. })
                    | (Op::WriteZeroes { .. }, Op::WriteZeroes { durability: of, .. }) => {
                        *of == durability
                    }
                    _ => false,
                };
                let kept = parts.iter().filter(as_asked).count();
                assert_eq!((parts.len(), kept), (chunks, chunks), "{op:?}: {parts:?}");
                for leg in &rig.legs {
                    leg.end(Ok(()));
                }
                assert_eq!(rig.owner.reap().len(), 1);
            }
        }
    }
}

/// One part had ended at a server that is gone, and may have forgotten it.
#[test]
fn a_write_in_parts_is_done_again_if_a_server_was_replaced_before_its_end() {
    let buffer = Buffer::new(2 * 4096);
    let (at, len, durability) = (0, 2 * 4096, Durability::Volatile);
    let unmap = Unmap::Allowed;
    let zeroes = Op::WriteZeroes {
        at,
        len,
        unmap,
        durability,
    };
    for (op, again) in [
        (write(0, &buffer), true),
        (zeroes, true),
        (read(0, &buffer), false),
        (Op::Flush, false),
    ] {
        let mut rig = Rig::new(2, PollScope::OwnInFlight);
        let completion = Completion {
            ticket: Ticket(7),
            result: Ok(()),
        };
        rig.owner.queue(7, op);
        let asked = |leg: &Arc<Manual>| match leg.asked()[..] {
            [Op::Write { at, from, .. }] => ("write", at, from.bytes()),
            [Op::WriteZeroes { at, len, .. }] => ("zeroes", at, len),
            _ => ("another", 0, 0),
        };
        let parts: Vec<_> = rig.legs.iter().map(asked).collect();
        rig.legs[0].end(Ok(()));
        assert_eq!(rig.owner.reap(), []);
        rig.legs[0].state.lock().unwrap().replacements += 1;
        rig.legs[1].end(Ok(()));
        if again {
            assert_eq!(rig.owner.reap(), [], "{op:?}");
            let now: Vec<_> = rig.legs.iter().map(asked).collect();
            assert_eq!(now, parts);
            assert_eq!(rig.disk.counters()[0], ("requests", 1));
            for leg in &rig.legs {
                leg.end(Ok(()));
            }
        }
        assert_eq!(rig.owner.reap(), [completion], "{op:?}");
    }
}

#[test]
fn a_leg_that_is_gone_fails_its_own_share_only() {
    let buffer = Buffer::new(4096);
    let mut rig = Rig::new(2, PollScope::OwnInFlight);
    rig.owner.queue(0, read(0, &buffer));
    rig.owner.queue(1, read(4096, &buffer));
    rig.legs[0].end(Err(Failure::Lost));
    rig.legs[1].end(Ok(()));
    let mut ended = rig.owner.reap();
    ended.sort_by_key(|done| done.ticket.0);
    let results: Vec<_> = ended.iter().map(|done| done.result).collect();
    assert_eq!(results, [Err(Failure::Lost), Ok(())]);
}

#[test]
fn a_poller_looks_at_the_queues_with_requests_of_its_own_and_no_others() {
    for (scope, others) in [(PollScope::OwnInFlight, 0), (PollScope::EveryQueue, 1)] {
        let buffer = Buffer::new(4096);
        let mut rig = Rig::new(16, scope);
        rig.owner.queue(0, read(3 * 4096, &buffer));
        rig.owner.reap();
        let looks: Vec<_> = rig.legs.iter().map(|leg| leg.looks()).collect();
        let mut expected = [others; 16];
        expected[3] = 1;
        assert_eq!(looks, expected);
        rig.legs[3].end(Ok(()));
        assert_eq!(rig.owner.reap().len(), 1);
        for leg in &rig.legs {
            leg.looks();
        }
        rig.owner.reap();
        assert_eq!(rig.legs[3].looks(), others, "nothing is in flight any more");
        let counters = rig.disk.counters();
        let of = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
        let polls = if others == 0 { 2 } else { 3 * 16 };
        assert_eq!((of("requests"), of("polls of legs")), (1, polls));
        assert_eq!(of("empty polls of legs"), polls - 1);
    }
}

#[test]
fn what_happens_to_a_leg_happens_to_the_whole() {
    let rig = Rig::new(2, PollScope::OwnInFlight);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&heard);
    let _subscription = rig
        .disk
        .events()
        .subscribe(move |event| list.lock().unwrap().push(event));
    for leg in &rig.legs {
        leg.state.lock().unwrap().bytes = 2 << 20;
        leg.events.tell(Event::Changed);
    }
    assert_eq!(rig.disk.geometry().bytes, 4 << 20, "both have grown");
    rig.legs[0].state.lock().unwrap().bytes = 1 << 20;
    rig.legs[0].events.tell(Event::Changed);
    assert_eq!(
        rig.disk.geometry().bytes,
        4 << 20,
        "nothing that was there goes"
    );
    rig.legs[1].events.tell(Event::Lost);
    let expected = [Event::Changed, Event::Changed, Event::Changed, Event::Lost];
    assert_eq!(*heard.lock().unwrap(), expected);
}

#[test]
fn an_open_channel_knows_of_growth() {
    let mut rig = Rig::new(2, PollScope::OwnInFlight);
    let buffer = Buffer::new(4096);
    let request = Request {
        ticket: Ticket(0),
        op: read(2 << 20, &buffer),
    };
    assert_eq!(
        rig.owner.channel.queue(request),
        Queued::Done(Err(Failure::OutOfRange))
    );
    for leg in &rig.legs {
        leg.state.lock().unwrap().bytes = 2 << 20;
        leg.events.tell(Event::Changed);
    }
    assert_eq!(rig.owner.channel.queue(request), Queued::Pending);
    rig.legs[0].end(Ok(()));
    assert_eq!(rig.owner.reap().len(), 1);
}
