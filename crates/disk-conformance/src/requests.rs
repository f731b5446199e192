//! Requests, and what they write.

use pollux_disk::{Durability, Op, Unmap};

use crate::buffer::Buffer;

/// A read of all of `into`.
#[must_use]
pub fn read(at: u64, into: &Buffer) -> Op {
    let into = into.spans();
    Op::Read { at, into }
}

/// A write of all of `from`, durable after the next flush.
#[must_use]
pub fn write(at: u64, from: &Buffer) -> Op {
    Op::Write {
        at,
        from: from.spans(),
        durability: Durability::Volatile,
    }
}

/// Zeroes, durable after the next flush.
#[must_use]
pub fn zeroes(at: u64, len: u64, unmap: Unmap) -> Op {
    Op::WriteZeroes {
        at,
        len,
        unmap,
        durability: Durability::Volatile,
    }
}

/// Bytes that differ from place to place and from `seed` to `seed`.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
