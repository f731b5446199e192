//! What a request asks for, and how that becomes chains.

use pollux_blk::{Kind, RangeSegment, RequestHeader, SECTOR, SERIAL_BYTES};
use pollux_disk::{Op, Unmap};
use pollux_memory::Spans;

use crate::device::limits::{Limits, Part, within};
use crate::memory::known_regions::Table;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// An operation on the disk.
    Op(Op),
    /// The serial number, into 20 bytes.
    Serial(Spans),
}

/// All of a request, in place.
pub fn all(ask: &Ask) -> Part {
    let len = match ask {
        Ask::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. }) => spans.bytes(),
        Ask::Op(Op::Discard { len, .. } | Op::WriteZeroes { len, .. }) => *len,
        Ask::Op(Op::Flush) => 0,
        Ask::Serial(_) => SERIAL_BYTES as u64,
    };
    Part {
        len,
        ..Part::default()
    }
}

/// How many buffers of data a chain has.
pub fn count(ask: &Ask, part: Part, limits: &Limits) -> usize {
    let buffers = |len: usize| len.div_ceil(limits.buffer as usize);
    match (ask, part) {
        (Ask::Op(Op::Discard { .. } | Op::WriteZeroes { .. }), _) => 1,
        (ask, part) => data_of(ask).map_or(0, |spans| {
            if part.bounced {
                return buffers(usize::try_from(part.len).unwrap_or(usize::MAX));
            }
            let spans = within(&spans, part.skip, part.len);
            spans.map(|span| buffers(span.len())).sum()
        }),
    }
}

/// The memory that a request names.
pub fn data_of(ask: &Ask) -> Option<Spans> {
    match *ask {
        Ask::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. })
        | Ask::Serial(spans) => Some(spans),
        Ask::Op(Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. }) => None,
    }
}

/// The parts that a request is cut into.
pub fn parts(ask: &Ask, limits: &Limits, table: &Table) -> Vec<Part> {
    let shared = |span| table.holds(span);
    let whole = Part::default();
    match *ask {
        Ask::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. }) => {
            let all = spans.bytes();
            cut(all, |skip| limits.cut(&spans, skip, shared))
        }
        Ask::Op(Op::Discard { len, .. }) => cut(len, |skip| Part {
            skip,
            len: limits.discard.min(len - skip),
            bounced: false,
        }),
        Ask::Op(Op::WriteZeroes { len, .. }) => cut(len, |skip| Part {
            skip,
            len: limits.write_zeroes.min(len - skip),
            bounced: false,
        }),
        Ask::Op(Op::Flush) => vec![whole],
        Ask::Serial(into) => vec![Part {
            len: SERIAL_BYTES as u64,
            bounced: !(into.len() == 1 && shared(into[0])),
            ..whole
        }],
    }
}

fn cut(all: u64, next: impl Fn(u64) -> Part) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut skip = 0;
    while skip < all {
        let part = next(skip);
        skip += part.len;
        parts.push(part);
    }
    parts
}

/// The header of a part, and the range that it names.
pub fn wire(ask: &Ask, part: Part) -> (RequestHeader, Option<RangeSegment>) {
    let range = |at: u64, unmap| RangeSegment {
        sector: (at + part.skip) / SECTOR,
        sectors: u32::try_from(part.len / SECTOR).expect("cut to what the device takes"),
        unmap,
    };
    let (kind, at, range) = match *ask {
        Ask::Op(Op::Read { at, .. }) => (Kind::In, at + part.skip, None),
        Ask::Op(Op::Write { at, .. }) => (Kind::Out, at + part.skip, None),
        Ask::Op(Op::Flush) => (Kind::Flush, 0, None),
        Ask::Op(Op::Discard { at, .. }) => (Kind::Discard, 0, Some(range(at, false))),
        Ask::Op(Op::WriteZeroes { at, unmap, .. }) => {
            let unmap = unmap == Unmap::Allowed;
            (Kind::WriteZeroes, 0, Some(range(at, unmap)))
        }
        Ask::Serial(_) => (Kind::GetId, 0, None),
    };
    let sector = at / SECTOR;
    (RequestHeader { kind, sector }, range)
}
