//! A disk as a virtio-blk device presents it: features and configuration (VIRTIO 1.3, 5.2.3 and 5.2.4).

use pollux_blk::{Cache, Config, DiscardLimits, SECTOR, Topology, WriteZeroesLimits, feature};
use pollux_disk::{Access, Geometry};

/// The longest segment we take of a driver that accepts a limit, in bytes.
pub const SIZE_MAX: u32 = 4 << 20;

/// The most ranges one DISCARD or `WRITE_ZEROES` may have.
pub const MAX_RANGES: u32 = 16;

/// The ring size that `SEG_MAX` is made for where the ring's real size is not known yet: the default
/// of QEMU. The configuration is read before the rings are set up, and a driver without indirect
/// descriptors must fit `SEG_MAX` segments, a header and a status into its ring.
const USUAL_RING: u16 = 128;

/// The most data segments that a request may have on any ring.
pub const SEG_MAX: u32 = segments(USUAL_RING);

/// How many data segments fit into a ring, with a header and a status, which take a descriptor each.
const fn segments(ring: u16) -> u32 {
    match ring {
        0..=3 => 1,
        _ => ring as u32 - 2,
    }
}

/// Every feature we can offer for a disk of this geometry.
pub fn features(geometry: &Geometry) -> u64 {
    let always = feature::SIZE_MAX
        | feature::SEG_MAX
        | feature::BLK_SIZE
        | feature::FLUSH
        | feature::TOPOLOGY
        | feature::CONFIG_WCE
        | feature::MQ
        | feature::LOG_ALL
        | feature::INDIRECT_DESC
        | feature::EVENT_IDX
        | feature::PROTOCOL_FEATURES
        | feature::VERSION_1;
    let access = match geometry.access {
        Access::ReadOnly => feature::RO,
        Access::ReadWrite => {
            let discard = geometry.discard.map_or(0, |_| feature::DISCARD);
            discard | geometry.write_zeroes.map_or(0, |_| feature::WRITE_ZEROES)
        }
    };
    always | access
}

/// The most data segments that a request may have, on rings of at most `queue_size` entries: what is told to the driver
/// as well as what is taken of it.
pub fn seg_max(queue_size: u16) -> u32 {
    SEG_MAX.min(segments(queue_size))
}

/// What is negotiated or configured beside the geometry.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    pub num_queues: u16,
    /// The largest ring the device takes.
    pub queue_size: u16,
    /// The smallest ring set up so far, where the driver refused indirect descriptors.
    pub smallest_direct_ring: Option<u16>,
    pub cache: Cache,
}

/// The configuration space.
pub fn config(geometry: &Geometry, negotiated: &Negotiated) -> Config {
    let block = geometry.block;
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
    let discard = geometry.discard.map(|limits| DiscardLimits {
        max_sectors: sectors(limits.max_bytes),
        max_seg: MAX_RANGES,
        sector_alignment: sectors(u64::from(limits.alignment)).max(1),
    });
    let write_zeroes = geometry.write_zeroes.map(|limits| WriteZeroesLimits {
        max_sectors: sectors(limits.max_bytes),
        max_seg: MAX_RANGES,
        may_unmap: true,
    });
    Config {
        capacity: geometry.bytes / SECTOR,
        size_max: SIZE_MAX,
        seg_max: seg_max(
            negotiated
                .smallest_direct_ring
                .map_or(negotiated.queue_size, |ring| {
                    ring.min(negotiated.queue_size)
                }),
        ),
        blk_size: block,
        topology: Topology {
            physical_block_exp: u8::try_from((geometry.physical_block / block).max(1).ilog2())
                .unwrap_or(0),
            alignment_offset: 0,
            min_io_size: u16::try_from(geometry.min_io / block).unwrap_or(0),
            opt_io_size: geometry.optimal_io / block,
        },
        writeback: negotiated.cache,
        num_queues: negotiated.num_queues,
        discard: discard.unwrap_or_default(),
        write_zeroes: write_zeroes.unwrap_or_default(),
    }
}

/// The `len` bytes at `offset` of the configuration space as a frontend asks for them. Some count from
/// its start, others from 0x100, where it lies behind a virtio-mmio register block. What is beyond the
/// fields we know reads as zeroes.
pub fn window(config: &Config, offset: u32, len: u32) -> Vec<u8> {
    let bytes = config.to_bytes();
    let start = local(offset) as usize;
    (start..start + len as usize)
        .map(|at| bytes.get(at).copied().unwrap_or(0))
        .collect()
}

/// An offset counted from the start of the configuration space.
pub fn local(offset: u32) -> u32 {
    if offset >= 0x100 {
        offset - 0x100
    } else {
        offset
    }
}

#[cfg(test)]
mod tests;
