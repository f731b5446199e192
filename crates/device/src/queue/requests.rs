//! One request: how it begins and how it ends.

use std::sync::atomic::Ordering;

use pollux_blk::{Kind, SERIAL_BYTES, Status};
use pollux_disk::{Channel, Durability, Failure, Op, Queued, Request, Ticket};
use pollux_memory::Spans;
use pollux_stats::Outcome;

use super::budget::{Budget, SLICE};
use super::parse::{Parsed, Range, parse};
use super::{Queue, slot_of};
use crate::observe::{Ended, Extent};

impl Queue {
    /// Reads what the chain in slot `at` asks for.
    #[inline]
    pub(super) fn parse(&mut self, at: u16, budget: &mut Budget) -> Result<Parsed, Status> {
        let slot = &mut self.slots[usize::from(at)];
        slot.status = slot.chain.take_last_byte();
        slot.outcome = Status::Ok;
        slot.bytes = 0;
        budget.walked(slot.chain.steps());
        let (kind, parsed) = parse(&mut slot.chain, &self.setup.rules, &mut self.ranges);
        slot.kind = kind;
        parsed
    }

    /// Starts the `request` that was parsed last, from slot `at`, or ends it where that can be done at once.
    #[inline]
    pub(super) fn begin(
        &mut self,
        at: u16,
        request: Result<Parsed, Status>,
        position: u16,
        budget: &mut Budget,
        channel: &mut dyn Channel,
    ) {
        let slot = &mut self.slots[usize::from(at)];
        let kind = slot.kind;
        slot.found_ns = self.observer.found_ns();
        if slot.found_ns > 0 {
            slot.extent = request.map_or(Extent::default(), |parsed| parsed.extent(&self.ranges));
        }
        let pace = self.setup.rules.pace;
        let parsed = match request {
            Ok(parsed) => parsed,
            Err(status) => return self.finish(at, status),
        };
        let op = match parsed {
            Parsed::Read { bytes: 0, .. } | Parsed::Write { bytes: 0, .. } => {
                return self.finish(at, Status::Ok);
            }
            Parsed::Read { at: from, bytes } | Parsed::Write { at: from, bytes }
                if pace.work(kind, bytes) > SLICE =>
            {
                slot.bytes = bytes;
                return self.begin_transfer(at, from, bytes, channel);
            }
            Parsed::Read { at: from, bytes } => {
                slot.bytes = bytes;
                budget.spend(pace.work(kind, bytes));
                // SAFETY: the slot's chain is not touched until the request is finished, and slots
                // never move; a queue is dropped only when nothing is in flight (`Queue::drained`).
                let into = unsafe { Spans::new(slot.chain.writable()) };
                Op::Read { at: from, into }
            }
            Parsed::Write { at: to, bytes } => {
                slot.bytes = bytes;
                budget.spend(pace.work(kind, bytes));
                // SAFETY: as for a read.
                let from = unsafe { Spans::new(slot.chain.readable()) };
                Op::Write {
                    at: to,
                    from,
                    durability: self.durability(),
                }
            }
            Parsed::Flush => Op::Flush,
            Parsed::GetId => return self.identify(at),
            Parsed::Discard | Parsed::WriteZeroes => {
                return self.begin_ranges(at, position, budget, channel);
            }
        };
        slot_of(&mut self.slots, at).pending = 1;
        self.queue(at, op, position, channel);
    }

    fn begin_ranges(
        &mut self,
        at: u16,
        position: u16,
        budget: &mut Budget,
        channel: &mut dyn Channel,
    ) {
        let durability = self.durability();
        let ranges = std::mem::take(&mut self.ranges);
        let slot = slot_of(&mut self.slots, at);
        let kind = slot.kind;
        let bytes = ranges.iter().map(|range| range.len).sum();
        let work = self.setup.rules.pace.work(kind, bytes);
        // Of several ranges that are zeroed, the first may have to be done again.
        let is_volatile = durability == Durability::Volatile && kind == Kind::WriteZeroes;
        let begins_anew = is_volatile && channel.replacements().is_some();
        if work > SLICE || begins_anew && ranges.len() > 1 {
            self.begin_slices(at, &ranges, channel);
            self.ranges = ranges;
            return;
        }
        budget.spend(work);
        // The slot must not end before its last range is queued.
        slot.pending = u16::try_from(ranges.len()).expect("the number of ranges is limited");
        for Range {
            at: from,
            len,
            unmap,
        } in &ranges
        {
            let (from, len, unmap) = (*from, *len, *unmap);
            let op = match kind {
                Kind::Discard => Op::Discard { at: from, len },
                _ => Op::WriteZeroes {
                    at: from,
                    len,
                    unmap,
                    durability,
                },
            };
            self.queue(at, op, position, channel);
        }
        self.ranges = ranges;
    }

    #[inline]
    pub(super) fn queue(&mut self, at: u16, op: Op, position: u16, channel: &mut dyn Channel) {
        let ticket = Ticket(u64::from(position) << 16 | u64::from(at));
        match channel.queue(Request { ticket, op }) {
            Queued::Pending => {}
            Queued::Done(result) => self.complete(at, result),
        }
    }

    /// Which queue and slot a ticket stands for.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a ticket is a position and a slot of 16 bits each"
    )]
    pub fn of_ticket(ticket: Ticket) -> (u16, u16) {
        ((ticket.0 >> 16) as u16, ticket.0 as u16)
    }

    /// A sub-request of the request in slot `at` has ended.
    #[inline]
    pub fn complete(&mut self, at: u16, result: Result<(), Failure>) {
        let slot = slot_of(&mut self.slots, at);
        debug_assert!(slot.pending > 0, "a request ends once");
        match result {
            Ok(()) => {}
            Err(Failure::Unsupported) => slot.outcome = Status::Unsupp,
            Err(_) => slot.outcome = Status::IoErr,
        }
        slot.pending -= 1;
        if slot.pending == 0 {
            let outcome = slot.outcome;
            self.finish(at, outcome);
        }
    }

    /// Answers `GET_ID`.
    #[cold]
    fn identify(&mut self, at: u16) {
        let slot = slot_of(&mut self.slots, at);
        let mut rest = &self.setup.serial[..];
        for span in slot.chain.writable() {
            let (here, later) = rest.split_at(rest.len().min(span.len()));
            span.split_at(here.len()).0.write(here);
            rest = later;
        }
        slot.bytes = (SERIAL_BYTES - rest.len()) as u64;
        self.finish(at, Status::Ok);
    }

    /// Writes the status, stages the chain, and frees the slot.
    #[inline]
    pub(super) fn finish(&mut self, at: u16, status: Status) {
        let slot = slot_of(&mut self.slots, at);
        let (kind, read) = match slot.kind {
            Kind::In => (pollux_stats::Kind::Read, slot.bytes),
            Kind::Out => (pollux_stats::Kind::Write, 0),
            Kind::Flush => (pollux_stats::Kind::Flush, 0),
            Kind::GetId => (pollux_stats::Kind::GetId, slot.bytes),
            Kind::Discard => (pollux_stats::Kind::Discard, 0),
            Kind::WriteZeroes => (pollux_stats::Kind::WriteZeroes, 0),
            Kind::Unknown(_) => (pollux_stats::Kind::Unknown, 0),
        };
        let counters = &self.setup.stats;
        let (outcome, data) = match status {
            Status::Ok => {
                match slot.kind {
                    Kind::In => counters.bytes_read.add(slot.bytes),
                    Kind::Out => counters.bytes_written.add(slot.bytes),
                    _ => {}
                }
                (Outcome::Ok, read)
            }
            Status::IoErr => (Outcome::IoErr, 0),
            Status::Unsupp => (Outcome::Unsupp, 0),
        };
        counters.request(kind, outcome);
        if slot.found_ns > 0 {
            self.observer.ended(Ended {
                found_ns: slot.found_ns,
                kind,
                outcome,
                extent: slot.extent,
            });
        }
        // A chain without a writable byte has no place for a status: it goes back with length 0.
        let mut written = 0;
        let status_byte = slot.status.take();
        if let Some(byte) = status_byte {
            byte.store(0, [status as u8]);
            written = u32::try_from(data + 1).unwrap_or(u32::MAX);
        }
        if let Some(dirty) = &self.setup.dirty {
            // A read that failed may have written some of its data.
            let data = match slot.kind {
                Kind::In | Kind::GetId => slot.bytes,
                _ => 0,
            };
            dirty.request(&self.setup.memory, slot.chain.writable(), data, status_byte);
        }
        if let Some(record) = &mut self.setup.record {
            record.staged(slot.head);
        }
        slot.chain.shrink();
        self.unpublished.add(slot.bytes);
        self.setup.ring.stage(slot.head, written);
        self.free.push(at);
    }

    /// When a write is complete (5.2.6.2): without FLUSH, or with write-back switched off, once it is
    /// stable.
    pub(super) fn durability(&self) -> Durability {
        if self.setup.flush && self.setup.writeback.load(Ordering::Relaxed) {
            Durability::Volatile
        } else {
            Durability::Stable
        }
    }
}
