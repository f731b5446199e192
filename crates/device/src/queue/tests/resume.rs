//! One queue after the other on the same ring, with a record of what was in flight.

use std::fs::File;

use pollux_disk::Completion;
use vhost::vhost_user::message::VhostUserInflight;

use super::*;
use crate::device::Options;
use crate::inflight::Inflight;

/// A channel into a disk that answers nothing.
pub(super) struct Silent;

// SAFETY: it touches no memory.
unsafe impl Channel for Silent {
    fn queue(&mut self, _request: Request) -> Queued {
        Queued::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _done: &mut dyn FnMut(Completion)) {}

    fn arm(&mut self) -> pollux_disk::Armed {
        pollux_disk::Armed::Idle
    }
}

/// A rig whose frontend keeps a record.
pub struct Kept {
    pub rig: Rig,
    description: VhostUserInflight,
    file: File,
    options: Options,
}

impl Kept {
    pub fn new() -> Self {
        Self::of(Rig::new())
    }

    pub fn of(rig: Rig) -> Self {
        let options = Options::new("test").num_queues(1).queue_size(64);
        let wanted = VhostUserInflight::new(0, 0, 1, 64);
        let (description, file) = Inflight::create(&wanted, &options).ok().unwrap();
        let mut kept = Self {
            rig,
            description,
            file,
            options,
        };
        kept.restart(0);
        kept
    }

    /// The process is gone, and the next one is told that the ring goes on at `base`.
    pub fn restart(&mut self, base: u16) {
        let rig = &mut self.rig;
        let file = self.file.try_clone().unwrap();
        let inflight = Inflight::map(&self.description, file, &self.options).unwrap();
        let mut end = DeviceEnd::new(&rig.areas, RingIndex(base), Suppression::EventIdx, true);
        let record = inflight.record(0, &mut end).unwrap();
        let mut setup = setup(end, &rig.table, &rig.rules, rig.writeback);
        setup.record = Some(record);
        let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK);
        setup.kick = Some(Arc::new(KickFd::new(kick.unwrap()).unwrap()));
        rig.queue = Queue::new(setup, AT_ONCE);
    }

    /// The heads that are in flight, by the record.
    pub(super) fn in_flight(&self) -> Vec<u16> {
        let mut bytes = vec![0; 16 * 65];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        let entries = (0u16..).zip(bytes.chunks(16).skip(1));
        entries
            .filter(|(_, entry)| entry[0] == 1)
            .map(|(head, _)| head)
            .collect()
    }

    /// Makes a write of `byte` to `sector` available; returns its status byte's place.
    pub(super) fn offer(&mut self, sector: u64, byte: u8, token: u64) -> Buffer {
        let kind = Kind::Out;
        let header = self.rig.buffer(&RequestHeader { kind, sector }.to_bytes());
        let data = self.rig.buffer(&[byte; 512]);
        let status = self.rig.buffer(&[0xff]);
        let driver = &mut self.rig.driver;
        driver.stage(&[header, data], &[status], token).unwrap();
        let _ = driver.publish();
        status
    }

    /// What has come back since the last time.
    pub(super) fn back(&mut self) -> Vec<u64> {
        let driver = &mut self.rig.driver;
        let ended = driver.look().unwrap();
        let token = |_| driver.take().unwrap().unwrap().token;
        (0..ended).map(token).collect()
    }

    pub fn turn(&mut self) -> u16 {
        let taken = self
            .rig
            .queue
            .take(0, &mut Budget::default(), &mut *self.rig.channel);
        self.rig.queue.publish();
        taken
    }
}

#[test]
fn what_was_in_flight_is_done_first_and_once() {
    let mut kept = Kept::new();
    // Some that come back, then some that the disk swallows, and one that nobody takes.
    let before: Vec<_> = (0..3).map(|token| kept.offer(token, 1, token)).collect();
    assert!(kept.turn() > 0);
    assert_eq!(kept.back(), [0, 1, 2]);
    for token in 3..6 {
        kept.offer(9, u8::try_from(token).unwrap(), token);
    }
    assert!(kept.rig.queue.take(0, &mut Budget::default(), &mut Silent) > 0);
    kept.offer(9, 6, 6);
    // The frontend knows only what it has got back.
    kept.restart(3);
    assert!(kept.turn() > 0);
    assert_eq!(
        kept.back(),
        [3, 4, 5],
        "in the order in which they were taken"
    );
    assert!(kept.turn() > 0);
    assert_eq!(kept.back(), [6]);
    assert_eq!(kept.rig.request(Kind::In, 9, &[], 512).1, [6; 512]);
    for status in before {
        assert_eq!(kept.rig.bytes(status), [OK]);
    }
    kept.restart(0);
    assert_eq!(kept.turn(), 0, "nothing is left to do");
}

#[test]
fn what_is_in_flight_after_two_crashes_is_done_in_its_first_order() {
    let mut kept = Kept::new();
    for token in 0..4 {
        kept.offer(0, 0, token);
    }
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    kept.restart(0);
    assert_eq!(kept.rig.queue.arm(), Armed::Pending, "nobody will kick");
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    assert_eq!(kept.rig.queue.arm(), Armed::Idle);
    kept.offer(0, 0, 4);
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    kept.restart(0);
    kept.turn();
    assert_eq!(kept.back(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_queue_that_stops_ends_what_it_found_in_flight() {
    let mut kept = Kept::new();
    kept.offer(0, 1, 0);
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    kept.offer(1, 1, 1);
    kept.restart(0);
    kept.rig.queue.drain();
    assert_eq!(kept.rig.queue.drained(), None, "one is in flight");
    kept.turn();
    assert_eq!(kept.rig.queue.drained(), Some(1));
    assert_eq!(kept.back(), [0], "the other was never taken");
}

#[test]
fn a_chain_that_its_driver_broke_meanwhile_breaks_the_ring_and_nothing_waits() {
    let mut kept = Kept::new();
    kept.offer(0, 1, 0);
    kept.offer(0, 1, 1);
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    // The first descriptor now says that its buffer is outside all memory.
    let address = (1u64 << 60).to_le_bytes();
    kept.rig.memory.write_all_at(&address, 0).unwrap();
    kept.restart(0);
    assert!(kept.turn() > 0);
    assert_eq!(kept.rig.queue.stats().snapshot().peer_faults, 1);
    assert_eq!(kept.turn(), 0);
    assert_eq!(kept.rig.queue.arm(), Armed::Idle);
    kept.rig.queue.drain();
    assert!(kept.rig.queue.drained().is_some());
}

#[test]
fn a_head_that_is_taken_twice_costs_only_its_driver() {
    let mut kept = Kept::new();
    kept.offer(0, 1, 0);
    // The same head once more in the available ring, behind our driver's back.
    let [ring, idx] = [0x4000 + 4 + 2, 0x4000 + 2];
    kept.rig
        .memory
        .write_all_at(&0u16.to_le_bytes(), ring)
        .unwrap();
    kept.rig
        .memory
        .write_all_at(&2u16.to_le_bytes(), idx)
        .unwrap();
    kept.rig.queue.take(0, &mut Budget::default(), &mut Silent);
    kept.restart(0);
    kept.turn();
    kept.turn();
    kept.restart(0);
    assert_eq!(kept.turn(), 0, "nothing is in flight for ever");
}
