//! Both ends, driven at random, in memory that is scribbled over meanwhile.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::ops::Range;

use common::ops::{Op, Setup, TABLE, op, setup};
use common::{BASE, END, Rig, SEAM, places};
use pollux_ring::{Chain, DeviceEnd, DriverEnd, Head, PeerFault};
use proptest::prelude::*;
use proptest::sample::Index;

/// What a peer may overwrite.
#[derive(Clone, Debug)]
enum Scribble {
    /// A descriptor, of the ring's or of an indirect table, with something like a descriptor.
    Descriptor {
        at: Index,
        address: u64,
        len: u32,
        flags: u16,
        next: u16,
    },
    AvailableIdx(u16),
    UsedIdx(u16),
    UsedElem {
        at: u16,
        id: u32,
        len: u32,
    },
    /// Anything, anywhere in the ring and its tables.
    Bytes {
        at: Index,
        bytes: [u8; 4],
    },
}

fn scribble() -> impl Strategy<Value = Scribble> {
    let address = prop_oneof![BASE..END, SEAM - 40..SEAM + 40, any::<u64>()];
    let len = prop_oneof![
        0..0x200_u32,
        (0..9_u32).prop_map(|count| 16 * count),
        any::<u32>()
    ];
    let flags = prop_oneof![8 => 0..8_u16, 1 => any::<u16>()];
    let number = || prop_oneof![8 => 0..40_u16, 1 => any::<u16>()];
    prop_oneof![
        8 => (any::<Index>(), address, len.clone(), flags, number())
            .prop_map(|(at, address, len, flags, next)| Scribble::Descriptor { at, address, len, flags, next }),
        1 => number().prop_map(Scribble::AvailableIdx),
        1 => number().prop_map(Scribble::UsedIdx),
        2 => (any::<u16>(), number(), len)
            .prop_map(|(at, id, len)| Scribble::UsedElem { at, id: u32::from(id), len }),
        2 => (any::<Index>(), any::<[u8; 4]>()).prop_map(|(at, bytes)| Scribble::Bytes { at, bytes }),
    ]
}

/// Two ends that share memory with a scribbler: what they must still keep to.
struct Siege {
    rig: Rig,
    setup: Setup,
    driver: DriverEnd,
    device: DeviceEnd,
    held: Vec<Head>,
    /// The writable room of each request in flight, by token.
    in_flight: Vec<Option<u64>>,
    chain: Chain,
}

impl Siege {
    fn new(setup: Setup) -> Self {
        let rig = Rig::new(setup.size);
        let Setup {
            suppression,
            tables,
            ..
        } = setup;
        Self {
            driver: if tables {
                rig.driver_with_tables(suppression, TABLE)
            } else {
                rig.driver(suppression)
            },
            device: rig.device(suppression),
            held: Vec::new(),
            in_flight: Vec::new(),
            chain: Chain::default(),
            rig,
            setup,
        }
    }

    /// Faults are no reason to stop: an end that goes on all the same must not fare worse.
    fn run(&mut self, op: &Op) -> Result<(), PeerFault> {
        match op {
            Op::Stage { readable, writable } => {
                let token = self.in_flight.len() as u64;
                if self.driver.stage(readable, writable, token).is_ok() {
                    let room = writable.iter().map(|buffer| u64::from(buffer.len)).sum();
                    self.in_flight.push(Some(room));
                }
            }
            Op::PublishAvailable => drop(self.driver.publish()),
            Op::LookAvailable => assert!(self.device.look()? <= self.setup.size),
            Op::TakeChain => {
                let head = self.rig.take(&mut self.device, &mut self.chain);
                self.chain_is_inside();
                self.held.extend(head?);
            }
            Op::ArmDevice => drop(self.device.arm()?),
            Op::DisarmDevice => self.device.disarm(),
            Op::Complete { which, written } => {
                if !self.held.is_empty() {
                    let head = self.held.swap_remove(which.index(self.held.len()));
                    self.device
                        .stage(head, u32::try_from(written.index(0x4000)).unwrap());
                }
            }
            Op::PublishUsed => drop(self.device.publish()),
            Op::LookUsed => assert!(self.driver.look()? <= self.setup.size),
            Op::TakeCompletion => {
                if let Some(completion) = self.driver.take()? {
                    let slot = &mut self.in_flight[usize::try_from(completion.token).unwrap()];
                    let room = slot.take().expect("a request ends once");
                    assert!(u64::from(completion.written) <= room);
                }
            }
            Op::ArmDriver => drop(self.driver.arm()?),
            Op::DisarmDriver => self.driver.disarm(),
            Op::Restart => {
                let next = self.device.next();
                self.device = DeviceEnd::new(&self.rig.areas, next, self.setup.suppression, true);
            }
        }
        Ok(())
    }

    fn chain_is_inside(&mut self) {
        let regions: Vec<_> = self
            .rig
            .memory
            .regions()
            .iter()
            .map(|region| region.addresses())
            .collect();
        let spans = [self.chain.readable(), self.chain.writable()].concat();
        for (at, len) in places(&spans) {
            let inside = |all: &Range<usize>| {
                at.addr() >= all.start && at.addr() + len <= all.end && len > 0
            };
            assert!(regions.iter().any(inside), "a span outside the memory");
        }
        assert!(
            spans.len() <= 2 * (usize::from(self.setup.size) + pollux_ring::MAX_CHAIN as usize)
        );
        // A device goes on to take it apart.
        let _ = (self.chain.take_front::<16>(), self.chain.take_last_byte());
    }

    fn scribble(&self, scribble: &Scribble) {
        let tables = u64::from(self.setup.size) * 16 * u64::from(TABLE);
        let shared = self.rig.free + tables - BASE;
        match *scribble {
            Scribble::Descriptor {
                at,
                address,
                len,
                flags,
                next,
            } => {
                // The ring's own table is first; one in two hits it.
                let size = usize::from(self.setup.size);
                let in_all = usize::try_from(shared / 16).unwrap();
                let at = at.index(2 * size.max(in_all / 2));
                let at = if at < in_all { at } else { at % size };
                self.rig
                    .describe_in(BASE, u16::try_from(at).unwrap(), address, len, flags, next);
            }
            Scribble::AvailableIdx(idx) => self.rig.set_available_idx(idx),
            Scribble::UsedIdx(idx) => self.rig.set_used_idx(idx),
            Scribble::UsedElem { at, id, len } => self.rig.use_up(at, id, len),
            Scribble::Bytes { at, bytes } => {
                let offset = at.index(usize::try_from(shared).unwrap() - 4);
                self.rig.fill(BASE + offset as u64, &bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_peer_that_scribbles_gets_typed_faults_and_nothing_else(
        setup in setup(),
        steps in prop::collection::vec((op(), prop::option::weighted(0.3, scribble())), 0..300),
    ) {
        let mut siege = Siege::new(setup);
        for (op, overwritten) in &steps {
            let _ = siege.run(op);
            if let Some(scribble) = overwritten {
                siege.scribble(scribble);
            }
        }
    }
}
