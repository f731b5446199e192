//! Large requests, which go on from turn to turn.
//!
//! A turn is bounded in chains and in work ([`Budget`]). A request that is more work than a slice is cut: one slice of it is in flight at a time, and the next one is begun in the turn
//! that finds it ended. So no request, however large, holds up its neighbours for longer than a small one, and what is in
//! flight at the disk is bounded by slices, however much was asked for.

use pollux_blk::{Kind, Status};
use pollux_disk::{Channel, Durability, Op, Unmap};
use pollux_memory::{Span, Spans};

use super::budget::{Budget, Pace, SPAN};
use super::parse::Range;
use super::{Queue, slot_of};

/// A request that is done in slices.
#[derive(Debug)]
pub struct Ongoing {
    slot: u16,
    kind: Kind,
    /// What of the disk is left to do, the next of it last. A transfer has one.
    left: Vec<Range>,
    /// The memory of the slice in flight: lent.
    spans: Vec<Span>,
    /// Where in the chain's spans that of the next begins: which, and how many bytes of it are done.
    next: (usize, usize),
    /// A flush follows: slices are not stable one by one.
    flush: bool,
}

impl Default for Ongoing {
    fn default() -> Self {
        Self {
            slot: 0,
            kind: Kind::Flush,
            left: Vec::new(),
            spans: Vec::new(),
            next: (0, 0),
            flush: false,
        }
    }
}

/// How far a request has come.
enum Stage {
    /// A slice is in flight.
    Waits,
    /// The turn has no room for its next slice.
    Stays,
    /// It has ended.
    Ended,
}

impl Ongoing {
    /// The next slice: how much work it is, and what is to be done. `None`: there is none left.
    fn slice(&self, pace: Pace) -> Option<(u64, Range)> {
        let range = *self.left.last()?;
        let most = pace.slice(self.kind);
        // Ends at multiples of its size: so that whole pages and chunks stay whole.
        let len = range.len.min(most - range.at % most);
        Some((pace.work(self.kind, len), Range { len, ..range }))
    }

    /// It is begun: the memory that goes with it is in `spans`, if it is a transfer's.
    fn advance(&mut self, len: u64, data: &[Span]) {
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

    fn lend(&self) -> Spans {
        // SAFETY: the list neither moves nor changes while a slice is in flight: `Queue::step` begins the next one,
        // and reuses the list, only once the slot says that there is none. A queue is dropped only when nothing
        // is in flight (`Queue::drained`).
        unsafe { Spans::new(&self.spans) }
    }

    fn op(&self, Range { at, len, unmap }: Range) -> Op {
        // What is to be stable is flushed in the end.
        let durability = Durability::Volatile;
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

impl Queue {
    /// The request in slot `at` is large: it is done in slices, of which none is begun yet.
    pub(super) fn begin_slices(&mut self, at: u16, ranges: &[Range]) {
        let durability = self.durability();
        let slot = slot_of(&mut self.slots, at);
        // Held until `step` finds all of it done.
        slot.pending = 1;
        let mut it = self.spare.pop().unwrap_or_default();
        it.slot = at;
        it.kind = slot.kind;
        it.left.clear();
        it.left.extend(ranges.iter().rev());
        it.next = (0, 0);
        it.flush =
            durability == Durability::Stable && matches!(slot.kind, Kind::Out | Kind::WriteZeroes);
        self.ongoing.push_back(it);
    }

    /// As [`Queue::begin_slices`], for the `bytes` from `from` on of a read or write.
    pub(super) fn begin_transfer(&mut self, at: u16, from: u64, bytes: u64) {
        let whole = Range {
            at: from,
            len: bytes,
            unmap: Unmap::Forbidden,
        };
        self.begin_slices(at, &[whole]);
    }

    /// Begins as many slices as the turn has room for, those of the oldest request first.
    pub(super) fn go_on(&mut self, position: u16, budget: &mut Budget, channel: &mut dyn Channel) {
        for _ in 0..self.ongoing.len() {
            let Some(mut it) = self.ongoing.pop_front() else {
                break;
            };
            match self.step(&mut it, position, budget, channel) {
                Stage::Waits => self.ongoing.push_back(it),
                Stage::Ended => self.spare.push(it),
                Stage::Stays => {
                    self.ongoing.push_front(it);
                    break;
                }
            }
        }
    }

    /// Goes on with one request: ends it once all of it is done, or one slice has failed or the session is lost, and none is
    /// in flight.
    fn step(
        &mut self,
        it: &mut Ongoing,
        position: u16,
        budget: &mut Budget,
        channel: &mut dyn Channel,
    ) -> Stage {
        loop {
            let slot = slot_of(&mut self.slots, it.slot);
            if slot.pending > 1 {
                return Stage::Waits;
            }
            let slice = it.slice(self.setup.rules.pace);
            let op = match slice {
                _ if slot.outcome != Status::Ok || self.setup.is_lost() => None,
                Some((work, _)) if work > budget.work => return Stage::Stays,
                Some((work, range)) => {
                    budget.spend(work.max(SPAN));
                    let data = match it.kind {
                        Kind::In => slot.chain.writable(),
                        Kind::Out => slot.chain.readable(),
                        _ => &[],
                    };
                    it.advance(range.len, data);
                    Some(it.op(range))
                }
                None => std::mem::take(&mut it.flush).then_some(Op::Flush),
            };
            budget.slices = budget.slices.saturating_add(1);
            let Some(op) = op else {
                slot.pending = 0;
                let outcome = slot.outcome;
                self.finish(it.slot, outcome);
                return Stage::Ended;
            };
            slot.pending += 1;
            self.queue(it.slot, op, position, channel);
        }
    }

    /// Is there a request of which the next slice can be begun?
    pub(super) fn has_slices(&self) -> bool {
        let ready = |it: &Ongoing| self.slots[usize::from(it.slot)].pending == 1;
        self.ongoing.iter().any(ready)
    }
}
