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
    /// What of the disk is left to do, the next of it last. A transfer has one.
    pub left: Vec<Range>,
    /// The memory of the slice in flight: lent.
    spans: Vec<Span>,
    /// Where in the chain's spans that of the next begins: which, and how many bytes of it are done.
    pub next: (usize, usize),
    /// What each slice of a write is to be.
    pub durability: Durability,
    /// A flush follows: slices are not stable one by one.
    pub flush: bool,
}

impl Default for Ongoing {
    fn default() -> Self {
        Self {
            slot: 0,
            kind: Kind::Flush,
            left: Vec::new(),
            spans: Vec::new(),
            next: (0, 0),
            durability: Durability::Volatile,
            flush: false,
        }
    }
}

impl Ongoing {
    /// The next slice: how much work it is, and what is to be done. `None`: there is none left.
    pub fn slice(&self, pace: Pace) -> Option<(u64, Range)> {
        let range = *self.left.last()?;
        let most = pace.slice(self.kind);
        // Ends at multiples of its size: so that whole pages and chunks stay whole.
        let len = range.len.min(most - range.at % most);
        Some((pace.work(self.kind, len), Range { len, ..range }))
    }

    /// It is begun: the memory that goes with it is in `spans`, if it is a transfer's.
    pub fn advance(&mut self, len: u64, data: &[Span]) {
        if let Some(range) = self.left.last_mut() {
            range.at += len;
            range.len -= len;
            if range.len == 0 {
                self.left.pop();
            }
        }
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
        it.left.push(Range {
            at: 0,
            len: 4096,
            unmap: pollux_disk::Unmap::Forbidden,
        });
        it.advance(4096, &data);
        assert_eq!(it.spans.len(), 4096);
        it.shrink();
        assert!(it.spans.capacity() < 2 * KEPT_SPANS);
    }
}
