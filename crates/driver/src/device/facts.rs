//! What a device says of itself, checked, and what follows for requests.

use pollux_blk::{Config, SECTOR, feature};
use pollux_disk::{Access, Geometry, RangeLimits};

use crate::device::limits::Limits;
use crate::error::Nonsense;
use crate::options::Options;

/// What the device says of itself, and what follows for requests.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Size, blocks, abilities.
    pub geometry: Geometry,
    /// What one request may hold.
    pub limits: Limits,
    /// Are there flushes? Without them every completed write is stable. With them a write is stable once one has
    /// followed it, whatever the cache mode is said to be: QEMU's storage daemon 7.2 says write-through, and caches.
    pub has_flush: bool,
    /// Counts the changes.
    pub generation: u64,
}

impl Facts {
    /// What a device says of itself first.
    ///
    /// # Errors
    ///
    /// When that cannot be.
    pub fn new(features: u64, config: &Config, options: &Options) -> Result<Self, Nonsense> {
        let has = |bit| features & bit != 0;
        let block = if has(feature::BLK_SIZE) {
            config.blk_size
        } else {
            512
        };
        if !block.is_power_of_two() || u64::from(block) < SECTOR {
            return Err(Nonsense::BlockSize { bytes: block });
        }
        let limits = Limits::new(features, config, options.queue_size, block);
        if limits.bytes() < u64::from(block) {
            let most = limits.bytes();
            return Err(Nonsense::Requests { most, block });
        }
        let topology = config.topology;
        let blocks = |count: u32| count.saturating_mul(block);
        let geometry = Geometry {
            bytes: size(config, block)?,
            access: if has(feature::RO) || options.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            block,
            physical_block: if has(feature::TOPOLOGY) {
                1u32.checked_shl(u32::from(topology.physical_block_exp))
                    .map_or(block, blocks)
            } else {
                block
            },
            min_io: if has(feature::TOPOLOGY) {
                blocks(u32::from(topology.min_io_size))
            } else {
                0
            },
            optimal_io: if has(feature::TOPOLOGY) {
                blocks(topology.opt_io_size)
            } else {
                0
            },
            discard: has(feature::DISCARD).then(|| RangeLimits {
                max_bytes: limits.discard,
                alignment: aligned(config.discard.sector_alignment, block),
            }),
            write_zeroes: has(feature::WRITE_ZEROES).then_some(RangeLimits {
                max_bytes: limits.write_zeroes,
                alignment: block,
            }),
        };
        Ok(Self {
            geometry,
            limits,
            has_flush: has(feature::FLUSH),
            generation: 0,
        })
    }

    /// What it says of itself later: its size is believed. Everything else stays as it was, whatever it says: requests
    /// are cut already, and the queues' tables are as long as they are.
    ///
    /// # Errors
    ///
    /// When the size cannot be.
    pub fn followed_by(&self, config: &Config) -> Result<Self, Nonsense> {
        Ok(Self {
            geometry: Geometry {
                bytes: size(config, self.geometry.block)?,
                ..self.geometry
            },
            limits: self.limits,
            has_flush: self.has_flush,
            generation: self.generation + 1,
        })
    }
}

/// The bytes of the disk, in whole blocks.
fn size(config: &Config, block: u32) -> Result<u64, Nonsense> {
    let sectors = config.capacity;
    let bytes = sectors.checked_mul(SECTOR);
    let bytes = bytes.ok_or(Nonsense::Capacity { sectors })?;
    Ok(bytes - bytes % u64::from(block))
}

/// An alignment of `sectors` in bytes, no smaller than a block.
fn aligned(sectors: u32, block: u32) -> u32 {
    let bytes = u64::from(sectors) * SECTOR;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(block)
}

#[cfg(test)]
pub mod tests;
