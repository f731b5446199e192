//! Queues that each turn leaves alone: nobody sleeps over what they bring, and nobody polls for nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossbeam_channel::unbounded;
use pollux_disk::Completion;
use pollux_disk::wait::Watch;
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::pipe;

use super::*;
use crate::worker::{Command, SessionId, Worker};
use crate::worker::{SessionQueues, kicked, watch_of};

const SESSION: SessionId = SessionId(0);

/// A driver that sends flushes, and its queue, which is kicked through `kick`.
struct Client {
    driver: DriverEnd,
    header: Buffer,
}

impl Client {
    fn new(kick: Option<OwnedFd>) -> (Self, Box<Queue>) {
        let mut rig = Rig::new();
        let flush = RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        };
        let header = rig.buffer(&flush.to_bytes());
        let Rig {
            driver, mut queue, ..
        } = rig;
        let kick = kick.map(|kick| Arc::new(KickFd::new(kick).unwrap()));
        queue.setup.kick = kick;
        (Self { driver, header }, Box::new(queue))
    }

    /// Sends one. Does the device want to be kicked?
    fn send(&mut self) -> bool {
        self.driver.stage(&[self.header], &[], 0).unwrap();
        self.driver.publish() == pollux_ring::Notify::Needed
    }

    fn back(&mut self) -> u16 {
        let back = self.driver.look().unwrap();
        while self.driver.take().unwrap().is_some() {}
        back
    }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

fn become_idle(session: &mut SessionQueues) {
    while !session.is_idle() {
        assert!(!session.turn(Tuning::default()).any());
    }
}

#[test]
fn a_ring_is_untouched_until_its_driver_has_written_a_chain() {
    let (mut client, mut queue) = Client::new(Some(event()));
    assert!(queue.is_untouched());
    assert_eq!(queue.arm(), Armed::Idle);
    assert!(queue.is_untouched(), "the device writes elsewhere");
    client.send();
    assert!(!queue.is_untouched());
}

#[test]
fn a_kick_through_a_pipe_that_is_emptied_meanwhile_is_heard() {
    let (reader, writer) = pipe().unwrap();
    let (mut client, queue) = Client::new(Some(reader));
    let mut sleeper = Sleeper::new().unwrap();
    let name = watch_of(SESSION, 0);
    let kick = queue.kick().unwrap().as_fd();
    sleeper.point().watch(kick, name).unwrap();
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let mut session = SessionQueues::new(SESSION, disk.open_channel(sleeper.point()).unwrap());
    session.start(queue);
    become_idle(&mut session);
    assert!(client.send(), "it was asked for kicks");
    rustix::io::write(&writer, &[1; 8]).unwrap();
    // The worker is awake, for others, and listens once in a while.
    let mut sessions = [session];
    sleeper.hear(|watch| kicked(&mut sessions, watch)).unwrap();
    // Now the others have nothing either.
    sleeper.arm();
    if sessions[0].is_idle() && sessions[0].arm() {
        let awake = Some(Duration::ZERO);
        sleeper
            .sleep(awake, |watch: Watch| kicked(&mut sessions, watch))
            .unwrap();
    }
    assert!(
        !sessions[0].is_idle(),
        "the worker sleeps, and the request waits"
    );
    assert_eq!(sessions[0].turn(Tuning::default()).chains, 1);
    assert_eq!(client.back(), 1);
}

#[test]
fn a_kick_for_nothing_leaves_a_queue_idle_and_the_next_is_heard() {
    let (mut client, queue) = Client::new(Some(event()));
    let kick = Arc::clone(queue.kick().unwrap());
    let mut sleeper = Sleeper::new().unwrap();
    let name = watch_of(SESSION, 0);
    sleeper.point().watch(kick.as_fd(), name).unwrap();
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let mut session = SessionQueues::new(SESSION, disk.open_channel(sleeper.point()).unwrap());
    session.start(queue);
    become_idle(&mut session);
    let mut sessions = [session];
    let mut is_idle_after_a_kick = || {
        rustix::io::write(kick.as_fd(), &1u64.to_ne_bytes()).unwrap();
        sleeper.hear(|watch| kicked(&mut sessions, watch)).unwrap();
        sessions[0].is_idle()
    };
    assert!(is_idle_after_a_kick());
    assert!(client.send(), "it asks for kicks still");
    assert!(!is_idle_after_a_kick());
    assert_eq!(sessions[0].turn(Tuning::default()).chains, 1);
}

/// The channel of a disk whose server has been restarted: it wants to be looked at, whatever is in flight.
struct Restarted {
    is_seen: bool,
}

// SAFETY: it touches no memory.
unsafe impl Channel for Restarted {
    fn queue(&mut self, _: Request) -> Queued {
        Queued::Done(Ok(()))
    }
    fn submit(&mut self) {}
    fn reap(&mut self, _: &mut dyn FnMut(Completion)) {
        self.is_seen = true;
    }
    fn arm(&mut self) -> pollux_disk::Armed {
        if self.is_seen {
            pollux_disk::Armed::Idle
        } else {
            pollux_disk::Armed::Pending
        }
    }
}

#[test]
fn a_channel_that_has_something_is_reaped_though_all_queues_are_idle() {
    let (_client, queue) = Client::new(Some(event()));
    // What the worker does, over and over, while there is nothing but that.
    let rests = |session: &mut SessionQueues| {
        let armed = session.arm();
        session.slept();
        if !session.is_idle() {
            let _ = session.turn(Tuning::default());
        }
        armed
    };
    let mut session = SessionQueues::new(SESSION, Box::new(Restarted { is_seen: false }));
    session.start(queue);
    // So that it sleeps over an idle queue: nobody turns it.
    for _ in 0..8 {
        session.slept();
    }
    assert!(session.is_idle());
    let sleeps = (0..100).any(|_| rests(&mut session));
    assert!(sleeps, "the worker spins");
}

#[test]
fn a_rest_that_was_no_sleep_makes_no_queue_idle() {
    // A neighbour without kicks: the worker never sleeps.
    let (_polled, of_polled) = Client::new(None);
    let (mut client, of_client) = Client::new(Some(event()));
    let (commands, receiver) = unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    for (number, queue) in [(0, of_polled), (1, of_client)] {
        let session = SessionId(number);
        let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
        let channel = disk.open_channel(worker.point()).unwrap();
        commands.send(Command::Open { session, channel }).unwrap();
        commands.send(Command::Start { session, queue }).unwrap();
    }
    assert!(worker.turn().commands);
    let mut kicks = 0;
    for _ in 0..100 {
        for _ in 0..20 {
            assert!(!worker.turn().any());
            worker.rest();
        }
        kicks += u32::from(client.send());
        while client.back() == 0 {
            let _ = worker.turn();
        }
    }
    assert_eq!(kicks, 0, "of 100 requests, 20 turns after each other");
}

/// A busy driver, which answers each completion with another read of this size, and an idle queue of another session
/// with 126 more: for how many requests of the first, and turns, does one of the second wait, at worst?
fn waits_behind(in_flight: u16, bytes: u32) -> (u64, u32) {
    let (mut busy, of_busy) = {
        let mut rig = Rig::in_memory_of(0x100_0000, 256, Geometry::plain(1 << 20), true);
        let header = RequestHeader {
            kind: Kind::In,
            sector: 0,
        };
        let header = rig.buffer(&header.to_bytes());
        let mut room = vec![];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(0x8000);
            room.push(Buffer {
                address: 0x10_0000,
                len,
            });
            left -= len;
        }
        room.push(rig.buffer(&[0xff]));
        let Rig { driver, queue, .. } = rig;
        ((driver, header, room), Box::new(queue))
    };
    let (commands, receiver) = unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    let (mut clients, mut queues) = (vec![], vec![]);
    for _ in 0..127 {
        let kick = event();
        let (client, queue) = Client::new(Some(kick.try_clone().unwrap()));
        clients.push((client, kick));
        queues.push(queue);
    }
    for (number, queues) in [(0, vec![of_busy]), (1, queues)] {
        let session = SessionId(number);
        let disk = pollux_disk::Memory::new(Geometry::plain(1 << 20)).unwrap();
        let channel = disk.open_channel(worker.point()).unwrap();
        commands.send(Command::Open { session, channel }).unwrap();
        for (index, mut queue) in (0..).zip(queues) {
            queue.setup.index = index;
            if let Some(kick) = queue.kick() {
                let name = watch_of(session, index);
                worker.point().watch(kick.as_fd(), name).unwrap();
            }
            commands.send(Command::Start { session, queue }).unwrap();
        }
    }
    assert!(worker.turn().commands);
    for _ in 0..5000 {
        assert!(!worker.turn().any());
    }
    for _ in 0..in_flight {
        busy.0.stage(&[busy.1], &busy.2, 0).unwrap();
    }
    let _ = busy.0.publish();
    let (mut most, mut turns) = (0, 0);
    for (client, kick) in clients.iter_mut().rev() {
        assert!(client.send(), "it is idle");
        rustix::io::write(kick, &1u64.to_ne_bytes()).unwrap();
        let (mut before, mut after) = (0, 0);
        while client.back() == 0 {
            let _ = worker.turn();
            let back = busy.0.look().unwrap();
            while busy.0.take().unwrap().is_some() {}
            for _ in 0..back {
                busy.0.stage(&[busy.1], &busy.2, 0).unwrap();
            }
            let _ = busy.0.publish();
            before += u64::from(back);
            after += 1;
        }
        most = most.max(before);
        turns = turns.max(after);
    }
    (most, turns)
}

#[test]
fn a_request_of_one_of_many_idle_queues_waits_for_a_few_turns_of_others() {
    for (in_flight, bytes, most) in [(1, 4096, 33), (15, 4096, 33), (16, 0x2_0000, 4)] {
        let (chains, turns) = waits_behind(in_flight, bytes);
        assert!(turns <= most, "{turns} turns, {chains} requests of {bytes}");
    }
}
