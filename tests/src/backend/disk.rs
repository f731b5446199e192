//! The disk behind the device: bytes, and what it says of itself.

use super::plan::Plan;
use super::plan::feature;

/// Bytes of a sector, whatever the block size.
pub(super) const SECTOR: u64 = 512;

/// Bytes of the configuration space (5.2.4).
const CONFIG: usize = 96;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoErr = 1,
    Unsupported = 2,
}

/// What one request may be (5.2.6.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub size_max: u32,
    pub seg_max: u32,
}

/// A disk in memory.
pub(super) struct Disk {
    bytes: Vec<u8>,
    config: Vec<u8>,
    block: u64,
    pub limits: Limits,
}

impl Disk {
    pub fn new(plan: &Plan) -> Self {
        let len = usize::try_from(plan.sectors * SECTOR).expect("a small disk");
        let mut disk = Self {
            bytes: vec![0; len],
            config: vec![0; CONFIG],
            block: plan.block.into(),
            limits: Limits {
                size_max: plan.size_max,
                seg_max: plan.seg_max,
            },
        };
        disk.put(0, &plan.sectors.to_le_bytes());
        disk.put(8, &plan.size_max.to_le_bytes());
        disk.put(12, &plan.seg_max.to_le_bytes());
        disk.put(20, &plan.block.to_le_bytes());
        disk.put(32, &[1]); // writeback
        disk.put(34, &plan.queues.to_le_bytes());
        for ranges in [36, 48, 60] {
            disk.put(ranges, &plan.range_sectors.to_le_bytes());
            disk.put(ranges + 4, &1u32.to_le_bytes()); // segments
        }
        for alignment in [44, 68] {
            disk.put(alignment, &1u32.to_le_bytes()); // of discards and secure erases
        }
        disk.put(56, &[1]); // zeroes may unmap
        for (at, bytes) in &plan.config {
            disk.put(*at, bytes);
        }
        disk
    }

    /// The configuration space says `bytes` there.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.config[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// `len` bytes of the configuration space at `offset`: zeroes where it has ended.
    pub fn config(&self, offset: usize, len: usize) -> Vec<u8> {
        let from = self.config.iter().skip(offset).copied();
        from.chain(std::iter::repeat(0)).take(len).collect()
    }

    /// The driver stores `bytes` at `offset`: the cache mode is all that it may (5.2.5).
    pub fn store_config(&mut self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        if (offset, bytes.len()) != (32, 1) {
            let len = bytes.len();
            return Err(format!("{len} bytes are written to the config at {offset}"));
        }
        self.config[32] = bytes[0];
        Ok(())
    }

    /// The disk has `sectors` from now on.
    pub fn resize(&mut self, sectors: u64) {
        let len = usize::try_from(sectors * SECTOR).expect("a small disk");
        self.bytes.resize(len, 0);
        self.put(0, &sectors.to_le_bytes());
    }

    /// The bytes that the driver names, if there are such.
    pub fn range(&mut self, sector: u64, len: u64) -> Result<&mut [u8], String> {
        let (all, at) = (self.bytes.len(), sector.checked_mul(SECTOR));
        let whole =
            len.is_multiple_of(self.block) && at.is_some_and(|at| at.is_multiple_of(self.block));
        let end = at.and_then(|at| at.checked_add(len));
        let range = at.zip(end).and_then(|(at, end)| {
            let range = usize::try_from(at).ok()?..usize::try_from(end).ok()?;
            self.bytes.get_mut(range)
        });
        let wrong = format!("{len} bytes at sector {sector} of a disk of {all} bytes");
        range.filter(|_| whole).ok_or(wrong)
    }

    /// Is this type of request one that was negotiated?
    pub const fn offers(kind: u32, features: u64) -> bool {
        match kind {
            kind::READ | kind::WRITE | kind::GET_ID => true,
            kind::FLUSH => features & feature::FLUSH != 0,
            kind::DISCARD => features & feature::DISCARD != 0,
            kind::WRITE_ZEROES => features & feature::WRITE_ZEROES != 0,
            kind::SECURE_ERASE => features & feature::SECURE_ERASE != 0,
            _ => false,
        }
    }
}

/// Types of requests (5.2.6).
pub(super) mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
    pub const SECURE_ERASE: u32 = 14;
}
