//! What one virtio-blk request may hold, and how a larger one is cut.

use pollux_blk::{Config, feature};
use pollux_memory::Span;

/// The limits of one queue of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest buffer, in bytes.
    pub buffer: u32,
    /// The most buffers of data in a request.
    pub buffers: usize,
    /// Logical block size: what a cut must be a multiple of.
    pub block: u32,
    /// The longest range of a discard, in bytes.
    pub discard: u64,
    /// The longest range of a write-zeroes, in bytes.
    pub write_zeroes: u64,
}

/// Which part of a request's data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// How much comes before it, in bytes.
    pub skip: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Does it go through a buffer of ours?
    pub bounced: bool,
}

/// The header and the status, which every request has besides its data.
pub const FRAME: usize = 2;

/// The most buffers of data in a request, whatever the device takes: a queue has a table for each of its
/// heads, and requests this long gain nothing by being longer.
const MOST_BUFFERS: usize = 1024;

/// The most data that goes through a bounce buffer at a time, in bytes.
const BOUNCED: u64 = 1 << 20;

impl Limits {
    /// Of a queue of `size` entries. A chain is never longer than its queue (VIRTIO 1.3, 2.7.5.3.1), with
    /// or without indirect tables.
    pub fn new(features: u64, config: &Config, size: u16, block: u32) -> Self {
        let has = |bit| features & bit != 0;
        // Without the feature a request has one buffer of data, as Linux has it.
        let seg_max = if has(feature::SEG_MAX) {
            usize::try_from(config.seg_max).unwrap_or(usize::MAX)
        } else {
            1
        };
        // Without the feature the field says nothing: no request relies on it.
        let bytes = |bit, sectors: u32| match sectors {
            sectors if sectors > 0 && has(bit) => u64::from(sectors) * pollux_blk::SECTOR,
            _ => u64::from(u32::MAX) * pollux_blk::SECTOR,
        };
        let whole_blocks = |bytes: u64| (bytes - bytes % u64::from(block)).max(u64::from(block));
        Self {
            buffer: match config.size_max {
                bytes if bytes > 0 && has(feature::SIZE_MAX) => bytes,
                // Nothing said. qemu-storage-daemon offers the feature, and then says 0.
                _ => u32::MAX,
            },
            buffers: seg_max.clamp(1, MOST_BUFFERS.min(usize::from(size) - FRAME)),
            block,
            discard: whole_blocks(bytes(feature::DISCARD, config.discard.max_sectors)),
            write_zeroes: whole_blocks(bytes(
                feature::WRITE_ZEROES,
                config.write_zeroes.max_sectors,
            )),
        }
    }

    /// The most data in a request.
    pub fn bytes(&self) -> u64 {
        (self.buffers as u64).saturating_mul(u64::from(self.buffer))
    }

    /// Do requests that keep to these also keep to `others`?
    pub fn fit_in(&self, others: &Self) -> bool {
        self.block == others.block
            && self.buffer <= others.buffer
            && self.buffers <= others.buffers
            && self.discard <= others.discard
            && self.write_zeroes <= others.write_zeroes
    }

    /// The first piece of `spans` (without the first `skip` bytes) that fits one request; `shared` tells
    /// whether the device can use a span in place.
    pub fn cut(&self, spans: &[Span], skip: u64, shared: impl Fn(Span) -> bool) -> Part {
        let block = u64::from(self.block);
        let (mut len, mut count, mut left) = (0, 0, self.buffers as u64);
        for span in after(spans, skip) {
            if !shared(span) {
                break;
            }
            let buffers = (span.len() as u64).div_ceil(u64::from(self.buffer));
            if buffers > left {
                len += left * u64::from(self.buffer);
                count += 1;
                break;
            }
            len += span.len() as u64;
            left -= buffers;
            count += 1;
        }
        let whole = len - len % block;
        // All of the rest, or as much of it as is whole blocks.
        if whole > 0 && count > 0 {
            return Part {
                skip,
                len: whole,
                bounced: false,
            };
        }
        // Nothing at the front can be used in place: through a buffer with as many bytes as are not
        // shared, or make up the block that is too scattered.
        let rest: u64 = after(spans, skip).map(|span| span.len() as u64).sum();
        let most = self.bytes().min(BOUNCED);
        let unusable: u64 = after(spans, skip)
            .take_while(|span| !shared(*span))
            .map(|span| span.len() as u64)
            .sum();
        let len = unusable.next_multiple_of(block).max(block);
        Part {
            skip,
            len: len.min((most - most % block).max(block)).min(rest),
            bounced: true,
        }
    }
}

/// What is left of `spans` after the first `skip` bytes.
pub fn after(spans: &[Span], skip: u64) -> impl Iterator<Item = Span> {
    let mut skip = skip;
    spans.iter().filter_map(move |span| {
        let at = usize::try_from(skip).map_or(span.len(), |skip| skip.min(span.len()));
        skip -= at as u64;
        let rest = span.split_at(at).1;
        (!rest.is_empty()).then_some(rest)
    })
}

/// The `len` bytes of `spans` after the first `skip`.
pub fn within(spans: &[Span], skip: u64, len: u64) -> impl Iterator<Item = Span> {
    let mut left = len;
    after(spans, skip).map_while(move |span| {
        let here = usize::try_from(left).map_or(span.len(), |left| left.min(span.len()));
        left -= here as u64;
        (here > 0).then(|| span.split_at(here).0)
    })
}

#[cfg(test)]
mod tests;
