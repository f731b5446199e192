//! What a disk says of itself.

use rustix::io::Errno;

use crate::{Failure, Op};

/// May it be written?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; everything that changes data fails.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// How large and how aligned a request over a range (discard, write zeroes) should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLimits {
    /// The largest range one request may name, in bytes.
    pub max_bytes: u64,
    /// What ranges should be aligned to to have an effect, in bytes.
    pub alignment: u32,
}

/// Size, block sizes and abilities of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size in bytes, a multiple of `block`.
    pub bytes: u64,
    /// May it be written?
    pub access: Access,
    /// Logical block size in bytes: what every offset and length is a multiple of. A power of two, at
    /// least 512.
    pub block: u32,
    /// Physical block size in bytes: the smallest write that needs no read. A multiple of `block`.
    pub physical_block: u32,
    /// Smallest request in bytes that costs no more than its share. 0: nothing to say.
    pub min_io: u32,
    /// Best request size in bytes, a stripe for instance. 0: nothing to say.
    pub optimal_io: u32,
    /// Can ranges be discarded?
    pub discard: Option<RangeLimits>,
    /// Can ranges be zeroed without sending the zeroes?
    pub write_zeroes: Option<RangeLimits>,
}

impl Geometry {
    /// A plain read-write disk of `bytes` with 512-byte blocks that can neither discard nor zero.
    #[must_use]
    pub const fn plain(bytes: u64) -> Self {
        Self {
            bytes,
            access: Access::ReadWrite,
            block: 512,
            physical_block: 512,
            min_io: 0,
            optimal_io: 0,
            discard: None,
            write_zeroes: None,
        }
    }

    /// Does the disk hold all of the `len` bytes from `at`?
    #[must_use]
    pub const fn holds(&self, at: u64, len: u64) -> bool {
        at <= self.bytes && len <= self.bytes - at
    }

    /// Can `op` be done on such a disk? Every channel asks this first.
    ///
    /// # Errors
    ///
    /// [`Failure::ReadOnly`], [`Failure::Unsupported`], [`Failure::OutOfRange`]; `EINVAL` where offset
    /// or length are not whole blocks.
    #[inline]
    pub fn check(&self, op: &Op) -> Result<(), Failure> {
        let changes = !matches!(op, Op::Read { .. } | Op::Flush);
        if changes && self.access == Access::ReadOnly {
            return Err(Failure::ReadOnly);
        }
        let (at, len) = match *op {
            Op::Read { at, into } => (at, into.bytes()),
            Op::Write { at, from, .. } => (at, from.bytes()),
            Op::Flush => return Ok(()),
            Op::Discard { .. } if self.discard.is_none() => return Err(Failure::Unsupported),
            Op::WriteZeroes { .. } if self.write_zeroes.is_none() => {
                return Err(Failure::Unsupported);
            }
            Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => (at, len),
        };
        if !self.holds(at, len) {
            return Err(Failure::OutOfRange);
        }
        if (at | len) & u64::from(self.block - 1) != 0 {
            return Err(Failure::Io(Errno::INVAL));
        }
        Ok(())
    }
}
