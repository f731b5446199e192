//! A request that is more work than a slice, and its next slice.

use pollux_blk::Kind;
use pollux_disk::{Durability, Op};
use pollux_memory::{Span, Spans};

use super::budget::Pace;
use super::parse::Range;

/// How many spans a list keeps room for: a frontend that shares its memory in tiny pieces makes many.
const KEPT_SPANS: usize = 128;

/// A request that is done in slices.
#[derive(Debug)]
pub struct Ongoing {
    pub slot: u16,
    pub kind: Kind,
    /// Where on the disk. A transfer has one.
    ranges: Vec<Range>,
    /// What of that is begun: so many whole ranges, and so many bytes of the next.
    begun: (usize, u64),
    /// The memory of the slice in flight: lent.
    spans: Vec<Span>,
    /// Where in the chain's spans that of the next begins: which, and how many bytes of it are done.
    next: (usize, usize),
    /// What each slice of a write is to be.
    durability: Durability,
    /// A flush follows: slices are not stable one by one.
    pub flush: bool,
    /// How often the server of the disk had been replaced before, if one can be.
    replacements: Option<u64>,
}

impl Default for Ongoing {
    fn default() -> Self {
        Self {
            slot: 0,
            kind: Kind::Flush,
            ranges: Vec::new(),
            begun: (0, 0),
            spans: Vec::new(),
            next: (0, 0),
            durability: Durability::Volatile,
            flush: false,
            replacements: None,
        }
    }
}

impl Ongoing {
    /// Of the request in `slot`, over these `ranges`. None of it is begun.
    pub fn set(&mut self, slot: u16, kind: Kind, ranges: &[Range]) {
        (self.slot, self.kind) = (slot, kind);
        self.ranges.clear();
        self.ranges.extend_from_slice(ranges);
    }

    /// It begins, with its first slice. What is to be stable is made so slice by slice where a server can go, as other
    /// servers behind that one may go as well.
    pub fn begin(&mut self, durability: Durability, replacements: Option<u64>) {
        (self.begun, self.next) = ((0, 0), (0, 0));
        self.replacements = replacements;
        let is_flushed = durability == Durability::Stable && replacements.is_none();
        self.flush = is_flushed && self.writes();
        self.durability = if is_flushed {
            Durability::Volatile
        } else {
            durability
        };
    }

    /// It has ended: may some of what it has written be lost, as the server has been replaced meanwhile?
    pub fn is_forgotten(&self, replacements: Option<u64>) -> bool {
        let is_volatile = self.durability == Durability::Volatile;
        self.replacements != replacements && is_volatile && self.writes()
    }

    fn writes(&self) -> bool {
        matches!(self.kind, Kind::Out | Kind::WriteZeroes)
    }

    /// The next slice: how much work it is, and what is to be done. `None`: there is none left.
    pub fn slice(&self, pace: Pace) -> Option<(u64, Range)> {
        let (at, done) = self.begun;
        let range = *self.ranges.get(at)?;
        let (from, left) = (range.at + done, range.len - done);
        let most = pace.slice(self.kind);
        // Ends at multiples of its size: so that whole pages and chunks stay whole.
        let len = left.min(most - from % most);
        let slice = Range {
            at: from,
            len,
            ..range
        };
        Some((pace.work(self.kind, len), slice))
    }

    /// It is begun: the memory that goes with it is in `spans`, if it is a transfer's.
    pub fn advance(&mut self, len: u64, data: &[Span]) {
        let (at, done) = self.begun;
        self.begun = match self.ranges[at].len - done {
            left if left == len => (at + 1, 0),
            _ => (at, done + len),
        };
        self.spans.clear();
        let mut wanted = usize::try_from(len).expect("a slice is small");
        while wanted > 0
            && let Some(span) = data.get(self.next.0)
        {
            let rest = span.split_at(self.next.1).1;
            let here = rest.split_at(rest.len().min(wanted)).0;
            self.spans.push(here);
            wanted -= here.len();
            self.next = if here.len() == rest.len() {
                (self.next.0 + 1, 0)
            } else {
                (self.next.0, self.next.1 + here.len())
            };
        }
    }

    /// It has ended. Gives back the room that unusually many spans took.
    pub fn shrink(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
    }

    fn lend(&self) -> Spans {
        // SAFETY: the list neither moves nor changes while a slice is in flight: `Queue::step` begins the next one,
        // and reuses the list, only once the slot says that there is none. A queue is dropped only when nothing
        // is in flight (`Queue::drained`).
        unsafe { Spans::new(&self.spans) }
    }

    pub fn op(&self, Range { at, len, unmap }: Range) -> Op {
        let durability = self.durability;
        match self.kind {
            Kind::In => Op::Read {
                at,
                into: self.lend(),
            },
            Kind::Out => Op::Write {
                at,
                from: self.lend(),
                durability,
            },
            Kind::Discard => Op::Discard { at, len },
            _ => Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_memory::{Region, memfd};

    use super::*;

    #[test]
    fn the_room_of_many_spans_is_given_back() {
        let region = Region::map(memfd("test", 4096).unwrap(), 0, 0, 0, 4096).unwrap();
        // SAFETY: the region is kept until the end of the test.
        let all = unsafe { region.span() };
        let data: Vec<_> = (0..4096).map(|at| all.slice(at, 1).unwrap()).collect();
        let mut it = Ongoing::default();
        let whole = Range {
            at: 0,
            len: 4096,
            unmap: pollux_disk::Unmap::Forbidden,
        };
        it.set(0, Kind::Out, &[whole]);
        it.begin(Durability::Volatile, None);
        it.advance(4096, &data);
        assert_eq!(it.spans.len(), 4096);
        it.shrink();
        assert!(it.spans.capacity() < 2 * KEPT_SPANS);
    }
}
