//! What two ends of a ring can be asked to do, at random.

use pollux_ring::{Buffer, Suppression};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{BOTH, SEAM, buffer};

/// How many descriptors an indirect table holds here.
pub const TABLE: u16 = 5;

#[derive(Clone, Debug)]
pub enum Op {
    Stage {
        readable: Vec<Buffer>,
        writable: Vec<Buffer>,
    },
    PublishAvailable,
    LookAvailable,
    TakeChain,
    ArmDevice,
    DisarmDevice,
    /// One of the chains taken, whichever: completions come out of order.
    Complete {
        which: Index,
        written: Index,
    },
    PublishUsed,
    LookUsed,
    TakeCompletion,
    ArmDriver,
    DisarmDriver,
    /// The device end stops; another goes on, and completes what the first still held.
    Restart,
}

pub fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
    // Around the seam, so that many cross it; some are empty.
    let address = prop_oneof![SEAM - 0x2000..SEAM + 0x2000, Just(SEAM)];
    let len = prop_oneof![0..0x3000_u32, Just(0), Just(1)];
    prop::collection::vec(
        (address, len).prop_map(|(address, len)| buffer(address, len)),
        0..4,
    )
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (buffers(), buffers()).prop_map(|(readable, writable)| Op::Stage { readable, writable }),
        2 => Just(Op::PublishAvailable),
        2 => Just(Op::LookAvailable),
        4 => Just(Op::TakeChain),
        2 => Just(Op::ArmDevice),
        1 => Just(Op::DisarmDevice),
        4 => (any::<Index>(), any::<Index>()).prop_map(|(which, written)| Op::Complete { which, written }),
        2 => Just(Op::PublishUsed),
        2 => Just(Op::LookUsed),
        4 => Just(Op::TakeCompletion),
        2 => Just(Op::ArmDriver),
        1 => Just(Op::DisarmDriver),
        1 => Just(Op::Restart),
    ]
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub size: u16,
    pub suppression: Suppression,
    pub tables: bool,
    /// How many entries have gone through the ring before.
    pub aged: u32,
}

pub fn setup() -> impl Strategy<Value = Setup> {
    let size = (0..=5).prop_map(|bits| 1_u16 << bits);
    // Mostly a fresh ring; now and then one that is about to wrap, which takes a while to get to.
    let aged = prop_oneof![15 => Just(0), 1 => 0xffd0..=0xffff_u32];
    (size, select(&BOTH), any::<bool>(), aged).prop_map(|(size, suppression, tables, aged)| Setup {
        size,
        suppression,
        tables,
        aged,
    })
}
