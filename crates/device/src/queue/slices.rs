//! How much a turn does, and what goes on from turn to turn.
//!
//! A turn is bounded in chains, and in work: what the worker itself has to do, counted in bytes that it copies. A request
//! that is more work than a slice is cut: one slice of it is in flight at a time, and the next one is begun in the turn
//! that finds it ended. So no request, however large, holds up its neighbours for longer than a small one, and what is in
//! flight at the disk is bounded by slices, however much was asked for.

use pollux_blk::{Kind, Status};
use pollux_disk::{Channel, Durability, Effort, Op, Unmap};
use pollux_memory::{Span, Spans};

use super::{Queue, slot_of};
use crate::request::Range;

/// How many chains one turn takes from the queues of a session: a driver that recycles heads for ever must
/// not hold the worker, nor deep queues those of another disk.
pub const BUDGET: u16 = 64;

/// The work of a slice. A power of two.
pub const SLICE: u64 = 128 << 10;

/// The work of a turn. So many chains of 4 KiB leave a slice over.
pub const WORK: u64 = BUDGET as u64 * (7 << 10);

/// After so much work a turn begins nothing more.
#[cfg(feature = "fuzzing")]
pub const ENOUGH: u64 = WORK - SLICE;

/// The work of a span: a descriptor, or a part of one.
pub const SPAN: u64 = 256;

/// How much work a byte is, in powers of two: `bytes >> shift`.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    read: u32,
    write: u32,
    range: u32,
}

impl Pace {
    /// As the disk says. What is handed over costs an eighth of a copy; what touches no data nothing. What `io_uring` copies
    /// counts as a quarter, so that one system call is made for half a MiB: for less it would be felt.
    pub const fn of(effort: Effort) -> Self {
        const NOTHING: u32 = u64::BITS - 1;
        let (read, write, range) = match effort {
            Effort::Nothing => (NOTHING, NOTHING, NOTHING),
            Effort::HandOver => (3, 3, NOTHING),
            Effort::Cached => (2, 3, NOTHING),
            Effort::Copy => (1, 1, NOTHING),
            Effort::Everything => (0, 0, 0),
        };
        Self { read, write, range }
    }

    const fn shift(self, kind: Kind) -> u32 {
        match kind {
            Kind::In => self.read,
            Kind::Out => self.write,
            _ => self.range,
        }
    }

    /// The work of a request of this kind over so many bytes.
    #[inline]
    pub const fn work(self, kind: Kind, bytes: u64) -> u64 {
        bytes >> self.shift(kind)
    }

    /// How many bytes a slice has. Only of what is more work than one.
    const fn slice(self, kind: Kind) -> u64 {
        SLICE << self.shift(kind)
    }
}

/// What is left of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// So many chains may be taken.
    pub chains: u16,
    work: u64,
    /// So many slices were begun.
    pub slices: u16,
    /// The queue that was served last had no room to poll for chains.
    pub(super) is_short: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            chains: BUDGET,
            work: WORK,
            slices: 0,
            is_short: false,
        }
    }
}

impl Budget {
    /// Is nothing left? Who is served has a slice's work before it, as less might never do.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.chains == 0 || self.work < SLICE
    }

    /// Did the turn end for a queue before it had its share, as one of so many that were `served`? It found the turn as it was
    /// `before`. The first of those served has had all that there is; one that had no room to poll has not had its share.
    #[inline]
    pub fn cuts_short(&mut self, before: Self, served: u16) -> bool {
        if std::mem::take(&mut self.is_short) {
            return true;
        }
        let chains = u32::from(before.chains - self.chains) * u32::from(served);
        let work = (before.work - self.work) * u64::from(served);
        served > 1 && self.is_spent() && chains < BUDGET.into() && work < WORK
    }

    /// May chains be taken by a queue that has to keep `reserve` for what it goes on with?
    #[inline]
    pub(super) fn takes(&self, reserve: u64) -> bool {
        self.work >= SLICE + reserve
    }

    #[inline]
    pub fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    /// A chain of so many spans was walked.
    #[inline]
    pub(super) fn walked(&mut self, spans: usize) {
        self.spend(SPAN * spans as u64);
    }
}

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
