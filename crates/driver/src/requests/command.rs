//! What a request asks for, and how that becomes chains.

use pollux_blk::{Kind, RangeSegment, RequestHeader, SECTOR, SERIAL_BYTES};
use pollux_disk::{Op, Unmap};
use pollux_memory::Spans;

use crate::device::limits::{Limits, Part, within};
use crate::memory::known_regions::RegionTable;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// An operation on the disk.
    Op(Op),
    /// The serial number, into 20 bytes.
    Serial(Spans),
}

impl Command {
    /// The same with other memory.
    #[must_use]
    pub fn with_data(self, spans: Spans) -> Self {
        match self {
            Self::Op(Op::Read { at, .. }) => Self::Op(Op::Read { at, into: spans }),
            Self::Op(Op::Write { at, durability, .. }) => Self::Op(Op::Write {
                at,
                from: spans,
                durability,
            }),
            Self::Op(Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. }) => self,
            Self::Serial(_) => Self::Serial(spans),
        }
    }
}

/// All of a request, in place.
pub fn all(command: &Command) -> Part {
    let len = match command {
        Command::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. }) => spans.bytes(),
        Command::Op(Op::Discard { len, .. } | Op::WriteZeroes { len, .. }) => *len,
        Command::Op(Op::Flush) => 0,
        Command::Serial(_) => SERIAL_BYTES as u64,
    };
    Part {
        len,
        ..Part::default()
    }
}

/// How many buffers of data a chain has.
pub fn count(command: &Command, part: Part, limits: &Limits) -> usize {
    let buffers = |len: usize| len.div_ceil(limits.buffer as usize);
    match (command, part) {
        (Command::Op(Op::Discard { .. } | Op::WriteZeroes { .. }), _) => 1,
        (command, part) => data_of(command).map_or(0, |spans| {
            if part.bounced {
                return buffers(usize::try_from(part.len).unwrap_or(usize::MAX));
            }
            let spans = within(&spans, part.skip, part.len);
            spans.map(|span| buffers(span.len())).sum()
        }),
    }
}

/// Does it change what is on the disk?
pub fn changes(command: &Command) -> bool {
    match command {
        Command::Op(op) => !matches!(op, Op::Read { .. } | Op::Flush),
        Command::Serial(_) => false,
    }
}

/// The memory that a request names.
pub fn data_of(command: &Command) -> Option<Spans> {
    match *command {
        Command::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. })
        | Command::Serial(spans) => Some(spans),
        Command::Op(Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. }) => None,
    }
}

/// The parts that a request is cut into.
pub fn parts(command: &Command, limits: &Limits, table: &RegionTable) -> Vec<Part> {
    let shared = |span| table.holds(span);
    let whole = Part::default();
    match *command {
        Command::Op(Op::Read { into: spans, .. } | Op::Write { from: spans, .. }) => {
            let all = spans.bytes();
            cut(all, |skip| limits.cut(&spans, skip, shared))
        }
        Command::Op(Op::Discard { len, .. }) => cut(len, |skip| Part {
            skip,
            len: limits.discard.min(len - skip),
            bounced: false,
        }),
        Command::Op(Op::WriteZeroes { len, .. }) => cut(len, |skip| Part {
            skip,
            len: limits.write_zeroes.min(len - skip),
            bounced: false,
        }),
        Command::Op(Op::Flush) => vec![whole],
        Command::Serial(into) => vec![Part {
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
pub fn wire(command: &Command, part: Part) -> (RequestHeader, Option<RangeSegment>) {
    let range = |at: u64, unmap| RangeSegment {
        sector: (at + part.skip) / SECTOR,
        sectors: u32::try_from(part.len / SECTOR).expect("cut to what the device takes"),
        unmap,
    };
    let (kind, at, range) = match *command {
        Command::Op(Op::Read { at, .. }) => (Kind::In, at + part.skip, None),
        Command::Op(Op::Write { at, .. }) => (Kind::Out, at + part.skip, None),
        Command::Op(Op::Flush) => (Kind::Flush, 0, None),
        Command::Op(Op::Discard { at, .. }) => (Kind::Discard, 0, Some(range(at, false))),
        Command::Op(Op::WriteZeroes { at, unmap, .. }) => {
            let unmap = unmap == Unmap::Allowed;
            (Kind::WriteZeroes, 0, Some(range(at, unmap)))
        }
        Command::Serial(_) => (Kind::GetId, 0, None),
    };
    let sector = at / SECTOR;
    (RequestHeader { kind, sector }, range)
}
