//! The configuration space (5.2.4): what a device tells of itself, and the one byte a driver writes.

use crate::field;

/// What a completed write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cache {
    /// It is on stable storage.
    Writethrough = 0,
    /// It can be read back; a FLUSH makes it stable.
    Writeback = 1,
}

impl Cache {
    /// The mode that a driver's write of `wire` to `writeback` asks for, if it is one.
    #[must_use]
    pub const fn parse(wire: u8) -> Option<Self> {
        match wire {
            0 => Some(Self::Writethrough),
            1 => Some(Self::Writeback),
            _ => None,
        }
    }
}

/// How the disk likes its requests (with [`TOPOLOGY`](crate::feature::TOPOLOGY)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// A physical block is 2 to this power logical blocks.
    pub physical_block_exp: u8,
    /// Where the first aligned logical block is.
    pub alignment_offset: u8,
    /// Smallest request that costs no more than its share, in logical blocks.
    pub min_io_size: u16,
    /// Best request size, in logical blocks; 0: nothing to say.
    pub opt_io_size: u32,
}

/// What a DISCARD may ask for (with [`DISCARD`](crate::feature::DISCARD)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardLimits {
    /// The longest range, in sectors.
    pub max_sectors: u32,
    /// How many ranges in a request.
    pub max_seg: u32,
    /// What ranges should be aligned to, in sectors.
    pub sector_alignment: u32,
}

/// What a `WRITE_ZEROES` may ask for (with [`WRITE_ZEROES`](crate::feature::WRITE_ZEROES)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteZeroesLimits {
    /// The longest range, in sectors.
    pub max_sectors: u32,
    /// How many ranges in a request.
    pub max_seg: u32,
    /// Can a range that allows it give its blocks back?
    pub may_unmap: bool,
}

/// `struct virtio_blk_config`, up to the fields of features that Pollux does not offer (secure erase
/// and zones follow), and without the geometry of a BIOS disk, which reads as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of the disk in sectors of 512 bytes.
    pub capacity: u64,
    /// Longest segment of a request in bytes (with [`SIZE_MAX`](crate::feature::SIZE_MAX)).
    pub size_max: u32,
    /// Most data segments of a request, not counting header and status (with
    /// [`SEG_MAX`](crate::feature::SEG_MAX)).
    pub seg_max: u32,
    /// Logical block size in bytes (with [`BLK_SIZE`](crate::feature::BLK_SIZE)).
    pub blk_size: u32,
    /// How the disk likes its requests.
    pub topology: Topology,
    /// The cache mode, which the driver may write (with [`CONFIG_WCE`](crate::feature::CONFIG_WCE)).
    pub writeback: Cache,
    /// How many request queues there are (with [`MQ`](crate::feature::MQ)).
    pub num_queues: u16,
    /// What a DISCARD may ask for.
    pub discard: DiscardLimits,
    /// What a `WRITE_ZEROES` may ask for.
    pub write_zeroes: WriteZeroesLimits,
}

/// Where the fields lie, in bytes.
mod at {
    pub const CAPACITY: usize = 0;
    pub const SIZE_MAX: usize = 8;
    pub const SEG_MAX: usize = 12;
    pub const BLK_SIZE: usize = 20;
    pub const PHYSICAL_BLOCK_EXP: usize = 24;
    pub const ALIGNMENT_OFFSET: usize = 25;
    pub const MIN_IO_SIZE: usize = 26;
    pub const OPT_IO_SIZE: usize = 28;
    pub const WRITEBACK: usize = 32;
    pub const NUM_QUEUES: usize = 34;
    pub const MAX_DISCARD_SECTORS: usize = 36;
    pub const MAX_DISCARD_SEG: usize = 40;
    pub const DISCARD_SECTOR_ALIGNMENT: usize = 44;
    pub const MAX_WRITE_ZEROES_SECTORS: usize = 48;
    pub const MAX_WRITE_ZEROES_SEG: usize = 52;
    pub const WRITE_ZEROES_MAY_UNMAP: usize = 56;
}

impl Config {
    /// Its length in bytes, padding at the end included. Drivers that know later fields ask for more:
    /// those are zeroes.
    pub const SIZE: usize = 60;

    /// Where the driver writes its [`Cache`] byte.
    pub const WRITEBACK_OFFSET: usize = at::WRITEBACK;

    /// Its bytes on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(at::CAPACITY, &self.capacity.to_le_bytes());
        put(at::SIZE_MAX, &self.size_max.to_le_bytes());
        put(at::SEG_MAX, &self.seg_max.to_le_bytes());
        put(at::BLK_SIZE, &self.blk_size.to_le_bytes());
        let Topology {
            physical_block_exp,
            alignment_offset,
            min_io_size,
            opt_io_size,
        } = self.topology;
        put(at::PHYSICAL_BLOCK_EXP, &[physical_block_exp]);
        put(at::ALIGNMENT_OFFSET, &[alignment_offset]);
        put(at::MIN_IO_SIZE, &min_io_size.to_le_bytes());
        put(at::OPT_IO_SIZE, &opt_io_size.to_le_bytes());
        put(at::WRITEBACK, &[self.writeback as u8]);
        put(at::NUM_QUEUES, &self.num_queues.to_le_bytes());
        let discard = self.discard;
        put(at::MAX_DISCARD_SECTORS, &discard.max_sectors.to_le_bytes());
        put(at::MAX_DISCARD_SEG, &discard.max_seg.to_le_bytes());
        put(
            at::DISCARD_SECTOR_ALIGNMENT,
            &discard.sector_alignment.to_le_bytes(),
        );
        let zeroes = self.write_zeroes;
        put(
            at::MAX_WRITE_ZEROES_SECTORS,
            &zeroes.max_sectors.to_le_bytes(),
        );
        put(at::MAX_WRITE_ZEROES_SEG, &zeroes.max_seg.to_le_bytes());
        put(at::WRITE_ZEROES_MAY_UNMAP, &[u8::from(zeroes.may_unmap)]);
        bytes
    }

    /// Reads what a device tells. A `writeback` that is neither 0 nor 1 counts as write-back, which
    /// makes the driver flush.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let u16_at = |at| u16::from_le_bytes(field(bytes, at));
        let u32_at = |at| u32::from_le_bytes(field(bytes, at));
        Self {
            capacity: u64::from_le_bytes(field(bytes, at::CAPACITY)),
            size_max: u32_at(at::SIZE_MAX),
            seg_max: u32_at(at::SEG_MAX),
            blk_size: u32_at(at::BLK_SIZE),
            topology: Topology {
                physical_block_exp: bytes[at::PHYSICAL_BLOCK_EXP],
                alignment_offset: bytes[at::ALIGNMENT_OFFSET],
                min_io_size: u16_at(at::MIN_IO_SIZE),
                opt_io_size: u32_at(at::OPT_IO_SIZE),
            },
            writeback: Cache::parse(bytes[at::WRITEBACK]).unwrap_or(Cache::Writeback),
            num_queues: u16_at(at::NUM_QUEUES),
            discard: DiscardLimits {
                max_sectors: u32_at(at::MAX_DISCARD_SECTORS),
                max_seg: u32_at(at::MAX_DISCARD_SEG),
                sector_alignment: u32_at(at::DISCARD_SECTOR_ALIGNMENT),
            },
            write_zeroes: WriteZeroesLimits {
                max_sectors: u32_at(at::MAX_WRITE_ZEROES_SECTORS),
                max_seg: u32_at(at::MAX_WRITE_ZEROES_SEG),
                may_unmap: bytes[at::WRITE_ZEROES_MAY_UNMAP] != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of every field is different, so that no two can be swapped unseen.
    const CONFIG: Config = Config {
        capacity: 0x0706_0504_0302_0100,
        size_max: 0x0b0a_0908,
        seg_max: 0x0f0e_0d0c,
        blk_size: 0x1716_1514,
        topology: Topology {
            physical_block_exp: 0x18,
            alignment_offset: 0x19,
            min_io_size: 0x1b1a,
            opt_io_size: 0x1f1e_1d1c,
        },
        writeback: Cache::Writeback,
        num_queues: 0x2322,
        discard: DiscardLimits {
            max_sectors: 0x2726_2524,
            max_seg: 0x2b2a_2928,
            sector_alignment: 0x2f2e_2d2c,
        },
        write_zeroes: WriteZeroesLimits {
            max_sectors: 0x3332_3130,
            max_seg: 0x3736_3534,
            may_unmap: true,
        },
    };

    #[test]
    fn every_field_lies_where_the_specification_puts_it() {
        for (at, byte) in (0u8..).zip(CONFIG.to_bytes()) {
            let expected = match at {
                // Cylinders, heads and sectors of the geometry, and the padding.
                0x10..=0x13 | 0x21 | 0x39.. => 0,
                // `writeback` and `write_zeroes_may_unmap`
                0x20 | 0x38 => 1,
                at => at,
            };
            assert_eq!(byte, expected, "byte {at:#x}");
        }
    }

    #[test]
    fn a_driver_reads_what_the_device_wrote() {
        assert_eq!(Config::parse(&CONFIG.to_bytes()), CONFIG);
    }

    #[test]
    fn the_cache_byte_is_zero_or_one() {
        assert_eq!(Config::WRITEBACK_OFFSET, 0x20);
        assert_eq!(Cache::parse(0), Some(Cache::Writethrough));
        assert_eq!(Cache::parse(1), Some(Cache::Writeback));
        assert_eq!(Cache::parse(2), None);
    }
}
