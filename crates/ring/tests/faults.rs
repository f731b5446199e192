//! Each way in which a peer can break a ring, provoked precisely: one test for each `PeerFault`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use common::{END, INDIRECT, NEXT, Rig, SEAM, WRITE, buffer};
use pollux_memory::Region;
use pollux_ring::{Chain, DeviceEnd, Head, MAX_CHAIN, PeerFault, RingIndex, Suppression};

const DATA: u64 = SEAM + 0x1000;

fn fault(rig: &mut Rig, head: u16) -> PeerFault {
    rig.walk(head).unwrap_err()
}

#[test]
fn index_jump() {
    let rig = Rig::new(8);
    let mut device = rig.device(Suppression::EventIdx);
    let mut chain = Chain::default();
    rig.set_available_idx(9);
    assert_eq!(
        device.look(),
        Err(PeerFault::IndexJump { jump: 9, size: 8 })
    );
    assert_eq!(
        rig.take(&mut device, &mut chain),
        Ok(None),
        "nothing of it is taken"
    );
    assert_eq!(device.arm(), Err(PeerFault::IndexJump { jump: 9, size: 8 }));

    let mut driver = rig.driver(Suppression::EventIdx);
    rig.set_used_idx(0xffff);
    assert_eq!(
        driver.look(),
        Err(PeerFault::IndexJump {
            jump: 0xffff,
            size: 8
        }),
        "backwards"
    );
    assert_eq!(driver.take(), Ok(None));
}

#[test]
fn head_out_of_range() {
    let mut rig = Rig::new(8);
    assert_eq!(
        fault(&mut rig, 8),
        PeerFault::HeadOutOfRange { head: 8, size: 8 }
    );
    assert_eq!(
        fault(&mut rig, 0xffff),
        PeerFault::HeadOutOfRange {
            head: 0xffff,
            size: 8
        }
    );
}

#[test]
fn next_out_of_range() {
    let mut rig = Rig::new(8);
    rig.describe(3, DATA, 16, NEXT, 8);
    assert_eq!(
        fault(&mut rig, 3),
        PeerFault::NextOutOfRange {
            head: 3,
            next: 8,
            len: 8
        }
    );

    let table = rig.free;
    rig.describe(3, table, 32, INDIRECT, 0);
    rig.describe_in(table, 0, DATA, 16, NEXT, 2);
    assert_eq!(
        fault(&mut rig, 3),
        PeerFault::NextOutOfRange {
            head: 3,
            next: 2,
            len: 2
        }
    );
}

#[test]
fn chain_loop() {
    let mut rig = Rig::new(8);
    rig.describe(1, DATA, 16, NEXT, 6);
    rig.describe(6, DATA, 16, NEXT, 1);
    assert_eq!(fault(&mut rig, 1), PeerFault::ChainLoop { head: 1 });

    let table = rig.free;
    rig.describe(1, table, 32, INDIRECT, 0);
    rig.describe_in(table, 0, DATA, 16, NEXT, 0);
    assert_eq!(fault(&mut rig, 1), PeerFault::ChainLoop { head: 1 });
}

#[test]
fn indirect_length() {
    let mut rig = Rig::new(8);
    let table = rig.free;
    for bytes in [0, 15, 17, 16 * (MAX_CHAIN + 1), u32::MAX] {
        rig.describe(4, table, bytes, INDIRECT, 0);
        assert_eq!(
            fault(&mut rig, 4),
            PeerFault::IndirectLength { head: 4, bytes }
        );
    }
    // The longest is legal, whatever the ring's size.
    rig.describe(4, table, 16 * MAX_CHAIN, INDIRECT, 0);
    for at in 0..1026 {
        let more = if at < 1025 { NEXT } else { 0 };
        rig.describe_in(table, at, DATA, 16, more, at + 1);
    }
    assert_eq!(rig.walk(4).unwrap().readable().len(), 1026);
}

#[test]
fn indirect_misplaced() {
    let mut rig = Rig::new(8);
    let table = rig.free;
    // With a successor.
    rig.describe(2, table, 16, INDIRECT | NEXT, 3);
    assert_eq!(fault(&mut rig, 2), PeerFault::IndirectMisplaced { head: 2 });
    // Inside an indirect table.
    rig.describe(2, table, 16, INDIRECT, 0);
    rig.describe_in(table, 0, table, 16, INDIRECT, 0);
    assert_eq!(fault(&mut rig, 2), PeerFault::IndirectMisplaced { head: 2 });
    // Without the feature.
    rig.describe_in(table, 0, DATA, 16, 0, 0);
    assert!(rig.walk(2).is_ok());
    rig.set_available_idx(1);
    let mut device = DeviceEnd::new(&rig.areas, RingIndex(0), Suppression::Flags, false);
    device.look().unwrap();
    let taken = rig.take(&mut device, &mut Chain::default());
    assert_eq!(taken, Err(PeerFault::IndirectMisplaced { head: 2 }));
}

#[test]
fn outside_memory() {
    let mut rig = Rig::new(8);
    let outside = [
        (0, 16),
        (END, 1),
        (END - 16, 17),
        (u64::MAX - 7, 16),
        (SEAM - 1, u32::MAX),
    ];
    for (address, len) in outside {
        rig.describe(0, address, len, 0, 0);
        assert_eq!(
            fault(&mut rig, 0),
            PeerFault::OutsideMemory {
                head: 0,
                address,
                len
            }
        );
    }
    for address in [0, END - 16, u64::MAX - 15] {
        rig.describe(0, address, 32, INDIRECT, 0);
        assert_eq!(
            fault(&mut rig, 0),
            PeerFault::OutsideMemory {
                head: 0,
                address,
                len: 32
            }
        );
    }
}

#[test]
fn readable_after_writable() {
    let mut rig = Rig::new(8);
    rig.describe(0, DATA, 16, NEXT | WRITE, 1);
    rig.describe(1, DATA, 16, 0, 0);
    assert_eq!(
        fault(&mut rig, 0),
        PeerFault::ReadableAfterWritable { head: 0 }
    );
    // Also from a direct descriptor to those of a table.
    let table = rig.free;
    rig.describe(1, table, 16, INDIRECT, 0);
    rig.describe_in(table, 0, DATA, 16, 0, 0);
    assert_eq!(
        fault(&mut rig, 0),
        PeerFault::ReadableAfterWritable { head: 0 }
    );
}

#[test]
fn scattered() {
    const PAGES: u32 = 64;
    const TINY: u64 = END + 0x10_0000;
    let mut rig = Rig::new(64);
    for page in 0..u64::from(PAGES) {
        let at = TINY + page * 0x1000;
        let fd = rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = std::fs::File::from(fd);
        file.set_len(0x1000).unwrap();
        let region = Region::map(file, 0, at, at, 0x1000).unwrap();
        rig.memory = rig.memory.with(Arc::new(region)).unwrap();
    }
    // As many crossings as descriptors are a driver's good right.
    let most = u16::try_from(2 * MAX_CHAIN / PAGES).unwrap();
    for (descriptors, scattered) in [(most, false), (most + 1, true)] {
        for at in 0..descriptors {
            let flags = if at + 1 < descriptors { NEXT } else { 0 };
            rig.describe(at, TINY, PAGES * 0x1000, flags, at + 1);
        }
        match rig.walk(0) {
            Ok(chain) => {
                assert!(!scattered);
                let crossings = descriptors * (u16::try_from(PAGES).unwrap() - 1);
                assert_eq!(chain.crossings(), usize::from(crossings));
            }
            Err(fault) => {
                assert!(scattered);
                assert_eq!(fault, PeerFault::Scattered { head: 0 });
            }
        }
    }
}

#[test]
fn not_in_flight() {
    let rig = Rig::new(8);
    let mut driver = rig.driver(Suppression::Flags);
    driver
        .stage(&[buffer(DATA, 16)], &[buffer(DATA, 16)], 5)
        .unwrap();
    // One that was never there, one in the middle of a chain, one too large, and the right one, twice.
    for (at, id) in (0..).zip([3, 1, 8, 0x1_0000, 0, 0]) {
        rig.use_up(at, id, 16);
    }
    rig.set_used_idx(6);
    assert_eq!(driver.look(), Ok(6));
    for id in [3, 1, 8, 0x1_0000] {
        assert_eq!(driver.take(), Err(PeerFault::NotInFlight { id }));
    }
    assert_eq!(driver.take().unwrap().unwrap().token, 5);
    assert_eq!(driver.take(), Err(PeerFault::NotInFlight { id: 0 }));
    assert_eq!(driver.room(), 8);
}

#[test]
fn overrun() {
    let rig = Rig::new(8);
    let mut driver = rig.driver(Suppression::Flags);
    driver
        .stage(
            &[buffer(DATA, 512)],
            &[buffer(DATA, 16), buffer(DATA, 1)],
            5,
        )
        .unwrap();
    rig.use_up(0, 0, 18);
    rig.set_used_idx(1);
    assert_eq!(driver.look(), Ok(1));
    assert_eq!(
        driver.take(),
        Err(PeerFault::Overrun {
            id: 0,
            written: 18,
            room: 17
        })
    );
}

#[test]
fn a_chain_that_turned_out_broken_has_no_parts() {
    let mut rig = Rig::new(8);
    rig.describe(0, DATA, 16, NEXT, 1);
    rig.describe(1, DATA, 16, WRITE, 0);
    rig.describe(2, DATA, 16, NEXT, 9);
    rig.offer(0);
    rig.offer(2);
    let mut device = rig.device(Suppression::Flags);
    let mut chain = Chain::default();
    assert_eq!(device.look(), Ok(2));
    assert_eq!(rig.take(&mut device, &mut chain), Ok(Some(Head(0))));
    assert!(rig.take(&mut device, &mut chain).is_err());
    assert!(chain.readable().is_empty());
    assert!(chain.writable().is_empty());
    assert_eq!(chain.take_front::<1>(), None);
}
