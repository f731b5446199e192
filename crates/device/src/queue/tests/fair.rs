//! Queues of one session share its turn; each session has its own.

use crossbeam_channel::unbounded;

use super::*;
use crate::queue::budget::STEP;
use crate::tuning::Tuning;
use crate::worker::SessionQueues;
use crate::worker::{Command, SessionId, Worker};

/// A flush has a header and a status, and so each takes two descriptors.
const FLUSHES: u16 = RING / 2;

#[test]
fn a_turn_takes_so_many_chains_and_nobody_waits_for_more_than_the_turn_of_others() {
    let sleeper = Sleeper::new().unwrap();
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let channel = disk.open_channel(sleeper.point()).unwrap();
    let mut session = SessionQueues::new(SessionId(0), channel);
    // Twice as much as a turn takes.
    let queues = 2 * BUDGET / FLUSHES;
    let mut drivers = vec![];
    for _ in 0..queues {
        let mut rig = Rig::new();
        let flush = RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        };
        let header = rig.buffer(&flush.to_bytes());
        for _ in 0..FLUSHES {
            let status = rig.buffer(&[0xee]);
            rig.driver.stage(&[header], &[status], 7).unwrap();
        }
        let _ = rig.driver.publish();
        let Rig { driver, queue, .. } = rig;
        session.start(Box::new(queue));
        drivers.push(driver);
    }
    let mut ended = vec![0; drivers.len()];
    for turn in 1..=2 {
        assert_eq!(session.turn(Tuning::default()).chains, BUDGET);
        for (driver, ended) in drivers.iter_mut().zip(&mut ended) {
            let _ = driver.look().unwrap();
            while driver.take().unwrap().is_some() {
                *ended += 1;
            }
        }
        let all: u16 = ended.iter().sum();
        assert_eq!(all, turn * BUDGET, "{ended:?}");
    }
    assert_eq!(ended, vec![FLUSHES; drivers.len()]);
    assert_eq!(session.turn(Tuning::default()).chains, 0);
}

/// A driver that keeps so many flushes in flight, each of a single descriptor: it has no place for a status.
struct Client {
    driver: DriverEnd,
    header: Buffer,
    waiting: u16,
}

impl Client {
    /// On a ring as small as holds so many.
    fn new(depth: u16) -> (Self, Queue) {
        let entries = depth.max(2).next_power_of_two();
        let mut rig = Rig::sized(entries, Geometry::plain(DISK), true);
        let flush = RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        };
        let header = rig.buffer(&flush.to_bytes());
        let Rig { driver, queue, .. } = rig;
        let client = Self {
            driver,
            header,
            waiting: depth,
        };
        (client, queue)
    }

    /// Sends all that is not in flight.
    fn send(&mut self) {
        for _ in 0..std::mem::take(&mut self.waiting) {
            self.driver.stage(&[self.header], &[], 0).unwrap();
        }
        let _ = self.driver.publish();
    }

    /// How many have come back?
    fn back(&mut self) -> u16 {
        let back = self.driver.look().unwrap();
        while self.driver.take().unwrap().is_some() {
            self.waiting += 1;
        }
        back
    }
}

/// A worker with so many sessions, of these queues each.
fn worker(sessions: Vec<Vec<Queue>>) -> Worker {
    let (commands, receiver) = unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    for (number, queues) in (0..).zip(sessions) {
        let session = SessionId(number);
        let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
        let channel = disk.open_channel(worker.point()).unwrap();
        commands.send(Command::Open { session, channel }).unwrap();
        for queue in queues.into_iter().map(Box::new) {
            commands.send(Command::Start { session, queue }).unwrap();
        }
    }
    // It has nothing else to do, and so does what it is told.
    assert!(worker.turn().commands);
    worker
}

/// More than a turn takes of one session.
const DEEP: u16 = 4 * BUDGET;

#[test]
fn a_turn_serves_each_session_whatever_another_has_sent() {
    let (mut deep, of_deep) = Client::new(DEEP);
    let (mut single, of_single) = Client::new(1);
    let mut worker = worker(vec![vec![of_deep], vec![of_single]]);
    for _ in 0..100 {
        deep.send();
        single.send();
        assert_eq!(worker.turn().chains, BUDGET + 1);
        assert_eq!((deep.back(), single.back()), (BUDGET, 1));
    }
    // Nor does it wait when it comes after so long that it is looked at by turns.
    for _ in 0..1000 {
        deep.send();
        assert_eq!(worker.turn().chains, BUDGET);
        assert_eq!(deep.back(), BUDGET);
    }
    deep.send();
    single.send();
    let _ = worker.turn();
    assert_eq!((deep.back(), single.back()), (BUDGET, 1));
}

#[test]
fn a_request_waits_for_less_than_two_turns_of_a_deep_queue_of_its_session() {
    let (mut deep, of_deep) = Client::new(DEEP);
    let (mut single, of_single) = Client::new(1);
    let mut worker = worker(vec![vec![of_deep, of_single]]);
    let mut most = 0;
    for _ in 0..100 {
        single.send();
        let mut before = 0;
        while single.back() == 0 && before < DEEP {
            deep.send();
            assert_eq!(worker.turn().chains, BUDGET);
            before += deep.back();
        }
        most = most.max(before);
    }
    assert_eq!(most, 2 * BUDGET - 1, "one of the second turn was its own");
}

#[test]
fn a_queue_beside_one_that_nearly_fills_a_turn_gets_as_much() {
    let (mut deep, of_deep) = Client::new(DEEP);
    let (mut other, of_other) = Client::new(BUDGET - 1);
    let mut worker = worker(vec![vec![of_deep, of_other]]);
    let mut back = [0, 0];
    for _ in 0..100 {
        deep.send();
        other.send();
        assert_eq!(worker.turn().chains, BUDGET);
        back[0] += deep.back();
        back[1] += other.back();
    }
    assert!(back[0].abs_diff(back[1]) <= 3 * BUDGET, "{back:?}");
}

#[test]
fn descriptors_of_no_bytes_are_work() {
    let mut rig = Rig::sized(1024, Geometry::plain(DISK), true);
    let flush = RequestHeader {
        kind: Kind::Flush,
        sector: 0,
    };
    let (header, status) = (rig.buffer(&flush.to_bytes()), rig.buffer(&[0xee]));
    let mut readable = vec![header];
    readable.resize(1001, Buffer { len: 0, ..header });
    rig.driver.stage(&readable, &[status], 7).unwrap();
    let _ = rig.driver.publish();
    let mut budget = Budget::default();
    assert_eq!(rig.queue.take(0, &mut budget, &mut *rig.channel), 1);
    assert_eq!(budget.spent(), 1002 * STEP);
}
