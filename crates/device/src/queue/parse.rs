//! From a descriptor chain to what the disk is to do (VIRTIO 1.3, 5.2.6).
//!
//! Nothing here believes the driver: lengths, positions and flags are checked against what the disk
//! is and what was advertised, and a request that breaks a rule gets the status the specification names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_blk::{Kind, RangeSegment, RequestHeader, SECTOR, Status};
use pollux_disk::{Access, Geometry, Unmap};
use pollux_memory::Span;
use pollux_ring::Chain;

use super::budget::Pace;
use crate::observe::Extent;

/// What requests are checked against, fixed while a queue runs but for the disk's size.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The disk as it was when the queue started.
    pub geometry: Geometry,
    /// Its size in bytes now.
    pub bytes: Arc<AtomicU64>,
    /// The longest segment, in bytes, where the driver accepted `SIZE_MAX`.
    pub size_max: Option<u32>,
    /// The most data segments, accepted or not.
    pub seg_max: u32,
    /// The most ranges a discard or write-zeroes may have.
    pub max_ranges: u32,
    /// How much work requests are to the worker.
    pub pace: Pace,
}

impl Rules {
    /// Does the disk hold all of the `len` bytes from `at`? It is asked after the request was seen in the ring.
    #[inline]
    fn holds(&self, at: u64, len: u64) -> bool {
        let bytes = self.bytes.load(Ordering::Acquire);
        Geometry {
            bytes,
            ..self.geometry
        }
        .holds(at, len)
    }
}

/// The most bytes of a read or write, accepted or not: what a driver sends that knows no limits but its own (EDK2).
const MOST_BYTES: u64 = 1 << 30;

/// A request that is well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Fill the chain's writable part from byte `at` of the disk.
    Read { at: u64, bytes: u64 },
    /// Store the chain's readable part at byte `at` of the disk.
    Write { at: u64, bytes: u64 },
    /// Make what was written durable.
    Flush,
    /// Tell the serial number.
    GetId,
    /// Discard the ranges that were parsed.
    Discard,
    /// Zero the ranges that were parsed.
    WriteZeroes,
}

impl Parsed {
    /// What of the disk it is about: of several ranges where the first begins, and the bytes of all.
    pub fn extent(self, ranges: &[Range]) -> Extent {
        match self {
            Self::Read { at, bytes } | Self::Write { at, bytes } => Extent { at, bytes },
            Self::Discard | Self::WriteZeroes => Extent {
                at: ranges.first().map_or(0, |range| range.at),
                bytes: ranges.iter().map(|range| range.len).sum(),
            },
            Self::Flush | Self::GetId => Extent::default(),
        }
    }
}

/// A range of the disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub at: u64,
    pub len: u64,
    pub unmap: Unmap,
}

/// Reads the header off `chain` and checks the request. Ranges, if it has any, go to `ranges`.
///
/// The kind is returned whatever the outcome, for the counters.
#[inline]
pub fn parse(
    chain: &mut Chain,
    rules: &Rules,
    ranges: &mut Vec<Range>,
) -> (Kind, Result<Parsed, Status>) {
    let Some(bytes) = chain.take_front::<{ RequestHeader::SIZE }>() else {
        return (Kind::Unknown(u32::MAX), Err(Status::IoErr));
    };
    let RequestHeader { kind, sector } = RequestHeader::parse(&bytes);
    let parsed = match kind {
        Kind::In => {
            let segments = Segments::of(chain, chain.writable());
            data(segments, sector, rules).map(|(at, bytes)| Parsed::Read { at, bytes })
        }
        Kind::Out => writable(rules)
            .and_then(|()| data(Segments::of(chain, chain.readable()), sector, rules))
            .map(|(at, bytes)| Parsed::Write { at, bytes }),
        Kind::Flush => Ok(Parsed::Flush),
        Kind::GetId => Ok(Parsed::GetId),
        Kind::Discard => range_list(chain, kind, rules, ranges).map(|()| Parsed::Discard),
        Kind::WriteZeroes => range_list(chain, kind, rules, ranges).map(|()| Parsed::WriteZeroes),
        Kind::Unknown(_) => Err(Status::Unsupp),
    };
    (kind, parsed)
}

fn writable(rules: &Rules) -> Result<(), Status> {
    match rules.geometry.access {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly => Err(Status::IoErr),
    }
}

/// The data of a read or write.
#[derive(Clone, Copy)]
struct Segments<'a> {
    spans: &'a [Span],
    /// How many the driver made of them: what crosses between regions of memory is one to it.
    count: usize,
}

impl<'a> Segments<'a> {
    fn of(chain: &Chain, spans: &'a [Span]) -> Self {
        Self {
            spans,
            count: spans.len().saturating_sub(chain.crossings()),
        }
    }
}

/// Where a read or write starts and how long it is, in bytes: whole sectors inside the disk.
#[inline]
fn data(segments: Segments<'_>, sector: u64, rules: &Rules) -> Result<(u64, u64), Status> {
    if segments.count > rules.seg_max as usize {
        return Err(Status::IoErr);
    }
    let mut bytes = 0u64;
    for span in segments.spans {
        if rules
            .size_max
            .is_some_and(|most| span.len() > most as usize)
        {
            return Err(Status::IoErr);
        }
        bytes += span.len() as u64;
    }
    let at = position(sector).ok_or(Status::IoErr)?;
    let whole = bytes.is_multiple_of(SECTOR) && bytes <= MOST_BYTES;
    if whole && rules.holds(at, bytes) {
        Ok((at, bytes))
    } else {
        Err(Status::IoErr)
    }
}

/// A sector's position in bytes, if there can be one.
fn position(sector: u64) -> Option<u64> {
    sector.checked_mul(SECTOR)
}

fn range_list(
    chain: &mut Chain,
    kind: Kind,
    rules: &Rules,
    ranges: &mut Vec<Range>,
) -> Result<(), Status> {
    ranges.clear();
    let limits = match kind {
        Kind::Discard => rules.geometry.discard,
        _ => rules.geometry.write_zeroes,
    };
    // First: a disk that must not be written knows these requests, and refuses them as it does writes (5.2.6.2).
    writable(rules)?;
    let limits = limits.ok_or(Status::Unsupp)?;
    while let Some(bytes) = chain.take_front::<{ RangeSegment::SIZE }>() {
        let segment = RangeSegment::parse(&bytes).map_err(|_| Status::Unsupp)?;
        if segment.unmap && kind == Kind::Discard {
            return Err(Status::Unsupp);
        }
        let at = position(segment.sector).ok_or(Status::IoErr)?;
        let len = u64::from(segment.sectors) * SECTOR;
        let too_many = ranges.len() == rules.max_ranges as usize;
        if too_many || len > limits.max_bytes || !rules.holds(at, len) {
            return Err(Status::IoErr);
        }
        let unmap = if segment.unmap {
            Unmap::Allowed
        } else {
            Unmap::Forbidden
        };
        ranges.push(Range { at, len, unmap });
    }
    // What is left is no whole segment.
    if ranges.is_empty() || !chain.readable().is_empty() {
        Err(Status::IoErr)
    } else {
        Ok(())
    }
}
