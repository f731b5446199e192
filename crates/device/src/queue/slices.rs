//! Large requests, which go on from turn to turn.
//!
//! A turn is bounded in chains and in work ([`Budget`]). A request that is more work than a slice is cut: one slice of
//! it is in flight at a time, and the next one is begun in the turn that finds it ended. So no request, however large,
//! holds up its neighbours for longer than a small one, and what is in flight at the disk is bounded by slices, however
//! much was asked for.
//!
//! The first slices of a write may have been in a cache of a server that is gone by the time the last one ends. The
//! request is not complete, so all of them are done again.

use pollux_blk::{Kind, Status};
use pollux_disk::{Channel, Durability, Op, Unmap};

use super::budget::{Budget, STEP};
use super::ongoing::Ongoing;
use super::parse::Range;
use super::{Queue, slot_of};

/// How far a request has come.
enum Stage {
    /// A slice is in flight.
    Waits,
    /// The turn has no room for its next slice.
    Stays,
    /// It has ended.
    Ended,
}

impl Queue {
    /// The request in slot `at` is large: it is done in slices, of which none is begun yet.
    pub(super) fn begin_slices(&mut self, at: u16, ranges: &[Range], channel: &dyn Channel) {
        let durability = self.durability();
        let slot = slot_of(&mut self.slots, at);
        // Held until `step` finds all of it done.
        slot.pending = 1;
        let mut it = self.spare.pop().unwrap_or_default();
        it.set(at, slot.kind, ranges);
        it.begin(durability, channel.replacements());
        self.ongoing.push_back(it);
    }

    /// As [`Queue::begin_slices`], for the `bytes` from `from` on of a read or write.
    pub(super) fn begin_transfer(&mut self, at: u16, from: u64, bytes: u64, channel: &dyn Channel) {
        let whole = Range {
            at: from,
            len: bytes,
            unmap: Unmap::Forbidden,
        };
        self.begin_slices(at, &[whole], channel);
    }

    /// Begins as many slices as the turn has room for, those of the oldest request first.
    pub(super) fn go_on(&mut self, position: u16, budget: &mut Budget, channel: &mut dyn Channel) {
        for _ in 0..self.ongoing.len() {
            let Some(mut it) = self.ongoing.pop_front() else {
                break;
            };
            match self.step(&mut it, position, budget, channel) {
                Stage::Waits => {
                    self.ongoing.push_back(it);
                    // To find that out is work, of hundreds in each turn.
                    budget.spend(STEP);
                    if budget.work < STEP {
                        break;
                    }
                }
                Stage::Ended => {
                    it.shrink();
                    self.spare.push(it);
                }
                Stage::Stays => {
                    self.ongoing.push_front(it);
                    break;
                }
            }
        }
    }

    /// Goes on with one request: ends it once all of it is done, or one slice has failed or the session is lost, and
    /// none is in flight. A write whose server was replaced meanwhile begins anew.
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
            let is_over = slot.outcome != Status::Ok || self.setup.is_lost();
            let op = match slice {
                _ if is_over => None,
                Some((work, _)) if work > budget.work => return Stage::Stays,
                Some((work, range)) => {
                    budget.spend(work.max(STEP));
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
                let replacements = channel.replacements();
                if !is_over && it.is_forgotten(replacements) {
                    it.begin(Durability::Volatile, replacements);
                    continue;
                }
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
