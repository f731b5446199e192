//! Both ends, driven at random, against a model made of queues.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::VecDeque;

use common::ops::{Op, Setup, TABLE, op, setup};
use common::{Rig, SEAM, buffer, places};
use pollux_ring::{
    Armed, Buffer, Chain, DeviceEnd, DriverEnd, Head, Notify, Refused, RingIndex, Suppression,
};
use proptest::prelude::*;

/// What one lane should be doing.
struct LaneModel<T> {
    suppression: Suppression,
    staged: VecDeque<T>,
    published: VecDeque<T>,
    /// How many of `published` the reader's last look saw.
    seen: usize,
    /// How many entries have been published and how many taken, ever.
    written: u64,
    taken: u64,
    /// `Flags`: does the reader want to be woken?
    armed: bool,
    /// `EventIdx`: the entry that wakes it, counted as `taken` is.
    event: u64,
    /// Arming said `Idle`, and nothing has been published since.
    asleep: bool,
}

impl<T> LaneModel<T> {
    fn new(suppression: Suppression) -> Self {
        Self {
            suppression,
            staged: VecDeque::new(),
            published: VecDeque::new(),
            seen: 0,
            written: 0,
            taken: 0,
            armed: false,
            event: 0xffff,
            asleep: false,
        }
    }

    /// What publishing must answer.
    fn publish(&mut self) -> Notify {
        let new = self.staged.len() as u64;
        let wanted = match self.suppression {
            Suppression::Flags => self.armed,
            // The event is known by its lowest 16 bits only.
            Suppression::EventIdx => (self.written..self.written + new)
                .any(|entry| (entry ^ self.event).trailing_zeros() >= 16),
        };
        self.written += new;
        self.published.append(&mut self.staged);
        let needed = wanted && new > 0;
        if new > 0 {
            assert!(needed || !self.asleep, "an end that sleeps is woken");
            self.asleep = false;
        }
        if needed {
            Notify::Needed
        } else {
            Notify::Suppressed
        }
    }

    fn look(&mut self) -> u16 {
        self.seen = self.published.len();
        u16::try_from(self.seen).unwrap()
    }

    fn take(&mut self) -> Option<T> {
        self.seen = self.seen.checked_sub(1)?;
        self.taken += 1;
        self.published.pop_front()
    }

    fn arm(&mut self) -> Armed {
        self.armed = true;
        self.event = self.taken;
        self.asleep = self.published.is_empty();
        self.seen = self.published.len();
        if self.asleep {
            Armed::Idle
        } else {
            Armed::Pending
        }
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.event = (self.taken + 0xffff) % 0x1_0000;
        }
        self.asleep = false;
    }
}

#[derive(Clone, Debug)]
struct Sent {
    token: u64,
    descriptors: u16,
    readable: Vec<Buffer>,
    writable: Vec<Buffer>,
}

struct World {
    rig: Rig,
    setup: Setup,
    driver: DriverEnd,
    device: DeviceEnd,
    available: LaneModel<Sent>,
    used: LaneModel<(Sent, u32)>,
    /// With the device.
    held: Vec<(Head, Sent)>,
    room: u16,
    token: u64,
    chain: Chain,
}

impl World {
    fn new(setup: Setup) -> Self {
        let rig = Rig::new(setup.size);
        let Setup {
            size,
            suppression,
            tables,
            aged,
        } = setup;
        let mut world = Self {
            driver: if tables {
                rig.driver_with_tables(suppression, TABLE)
            } else {
                rig.driver(suppression)
            },
            device: rig.device(suppression),
            available: LaneModel::new(suppression),
            used: LaneModel::new(suppression),
            held: Vec::new(),
            room: size,
            token: 0,
            chain: Chain::default(),
            rig,
            setup,
        };
        for _ in 0..aged {
            world.age();
        }
        world
    }

    /// One request, there and back.
    fn age(&mut self) {
        self.stage(&[buffer(SEAM, 1)], &[]);
        for op in [Op::PublishAvailable, Op::LookAvailable, Op::TakeChain] {
            self.run(&op);
        }
        self.complete(0, |room| room);
        for op in [Op::PublishUsed, Op::LookUsed, Op::TakeCompletion] {
            self.run(&op);
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Stage { readable, writable } => self.stage(readable, writable),
            Op::PublishAvailable => assert_eq!(self.driver.publish(), self.available.publish()),
            Op::LookAvailable => assert_eq!(self.device.look(), Ok(self.available.look())),
            Op::TakeChain => self.take_chain(),
            Op::ArmDevice => assert_eq!(self.device.arm(), Ok(self.available.arm())),
            Op::DisarmDevice => {
                self.device.disarm();
                self.available.disarm();
            }
            Op::Complete { which, written } => {
                if !self.held.is_empty() {
                    let part = |room| u32::try_from(written.index(room as usize + 1)).unwrap();
                    self.complete(which.index(self.held.len()), part);
                }
            }
            Op::PublishUsed => {
                assert_eq!(usize::from(self.device.staged()), self.used.staged.len());
                assert_eq!(self.device.publish(), self.used.publish());
            }
            Op::LookUsed => assert_eq!(self.driver.look(), Ok(self.used.look())),
            Op::TakeCompletion => self.take_completion(),
            Op::ArmDriver => assert_eq!(self.driver.arm(), Ok(self.used.arm())),
            Op::DisarmDriver => {
                self.driver.disarm();
                self.used.disarm();
            }
            Op::Restart => self.restart(),
        }
        assert_eq!(self.driver.room(), self.room);
    }

    fn stage(&mut self, readable: &[Buffer], writable: &[Buffer]) {
        let count = u16::try_from(readable.len() + writable.len()).unwrap();
        let tables = self.setup.tables;
        let most = if tables {
            TABLE.max(self.setup.size)
        } else {
            self.setup.size
        };
        let descriptors = if tables && count <= TABLE {
            count.min(1)
        } else {
            count
        };
        let expected = if count == 0 {
            Err(Refused::Empty)
        } else if count > most {
            Err(Refused::TooLong {
                buffers: usize::from(count),
                most: usize::from(most),
            })
        } else if descriptors > self.room {
            Err(Refused::Full)
        } else {
            Ok(())
        };
        assert_eq!(self.driver.stage(readable, writable, self.token), expected);
        if expected.is_ok() {
            self.room -= descriptors;
            self.available.staged.push_back(Sent {
                token: self.token,
                descriptors,
                readable: readable.to_vec(),
                writable: writable.to_vec(),
            });
            self.token += 1;
        }
    }

    fn take_chain(&mut self) {
        let taken = self.rig.take(&mut self.device, &mut self.chain).unwrap();
        let expected = self.available.take();
        assert_eq!(taken.is_some(), expected.is_some());
        if let (Some(head), Some(sent)) = (taken, expected) {
            assert_eq!(self.chain.head(), head);
            assert_eq!(
                places(self.chain.readable()),
                self.rig.spans(&sent.readable)
            );
            assert_eq!(
                places(self.chain.writable()),
                self.rig.spans(&sent.writable)
            );
            assert!(self.held.iter().all(|(other, _)| *other != head));
            self.held.push((head, sent));
        }
        assert_eq!(
            self.device.next(),
            RingIndex((self.available.taken & 0xffff).try_into().unwrap())
        );
    }

    /// The device is done with a chain it holds, and wrote some part of the room there is.
    fn complete(&mut self, at: usize, part: impl Fn(u32) -> u32) {
        let (head, sent) = self.held.swap_remove(at);
        let written = part(sent.writable.iter().map(|buffer| buffer.len).sum());
        self.device.stage(head, written);
        self.used.staged.push_back((sent, written));
    }

    fn take_completion(&mut self) {
        let taken = self.driver.take().unwrap();
        let expected = self.used.take();
        if let Some((sent, _)) = &expected {
            self.room += sent.descriptors;
        }
        let taken = taken.map(|completion| (completion.token, completion.written));
        assert_eq!(taken, expected.map(|(sent, written)| (sent.token, written)));
    }

    fn restart(&mut self) {
        self.run(&Op::PublishUsed);
        self.device = DeviceEnd::new(
            &self.rig.areas,
            self.device.next(),
            self.setup.suppression,
            true,
        );
        // It is awake, and looks without waiting for a kick.
        self.available.armed = true;
        self.available.disarm();
        self.available.seen = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_ends_do_what_two_queues_would(setup in setup(), ops in prop::collection::vec(op(), 0..300)) {
        let mut world = World::new(setup);
        for op in &ops {
            world.run(op);
        }
    }
}
