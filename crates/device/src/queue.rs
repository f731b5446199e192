//! One virtqueue as its worker sees it: chains become requests, completions become used elements.
//!
//! A request lives in a [`Slot`] from `take` to `stage`. The slot keeps the chain's spans, so the
//! guest's descriptors are never walked twice, and whoever must know which guest memory a request
//! writes (dirty-page logging) or which chains are in flight (the in-flight record) finds it there.

mod hold;
mod lead;
mod publish;
mod slices;
mod take;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pollux_blk::{Kind, SERIAL_BYTES, Status};
use pollux_disk::{Admitted, Channel, Durability, Failure, Op, Queued, Request, Ticket};
use pollux_memory::{Alarm, Memory, Span, Spans};
use pollux_ring::{Armed, Chain, DeviceEnd, Head, PeerFault};
use pollux_stats::{Outcome, QueueStats};

use crate::call::Call;
use crate::dirty::Dirty;
use crate::inflight::Record;
use crate::kick::KickFd;
use crate::lines::Lines;
use crate::request::{Parsed, Range, Rules, parse};
use crate::tuning::{Calls, Signal, Tuning};
use hold::Hold;
use lead::Lead;
use publish::Unpublished;
use slices::Ongoing;

#[cfg(test)]
pub use slices::WORK;
pub use slices::{BUDGET, Budget, Pace, SLICE};
#[cfg(feature = "fuzzing")]
pub use slices::{ENOUGH, SPAN};

/// What a frontend set up and a worker needs to run a queue.
pub struct Setup {
    /// The queue's number in its session.
    pub index: u16,
    pub ring: DeviceEnd,
    /// Tells whoever comes after us what is in flight; `None`: nobody wants to know.
    pub record: Option<Record>,
    pub memory: Arc<Memory>,
    /// The session's: once it has rung, what is read from memory of the session may be zeroes of our own.
    pub alarm: Arc<Alarm>,
    /// `None`: the frontend sends no kicks, the worker has to look.
    pub kick: Option<Arc<KickFd>>,
    /// `None`: the driver wants no calls.
    pub call: Option<Call>,
    /// Told when the ring is broken.
    pub error: Option<Call>,
    pub rules: Rules,
    pub serial: [u8; SERIAL_BYTES],
    /// Was FLUSH negotiated?
    pub flush: bool,
    /// The session's cache mode, which `CONFIG_WCE` switches at run time: true is write-back.
    pub writeback: Arc<AtomicBool>,
    /// Where to log what is written to guest memory, while the guest migrates.
    pub dirty: Option<Dirty>,
    pub stats: Arc<QueueStats>,
    /// How much of it the log is told.
    pub lines: Arc<Lines>,
}

impl Setup {
    /// Is the session over because of what its frontend did, its memory lost perhaps? From then on nothing is taken,
    /// begun or published: the session ends as if this process had been killed, and the in-flight record says what the
    /// next one does again. The handler of SIGBUS rings before it maps zeroes, so whatever was read from zeroes, by us or
    /// by the kernel, was read before this says so.
    #[inline]
    fn is_lost(&self) -> bool {
        self.alarm.rung().is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Takes nothing more; ends once nothing is in flight.
    Draining,
    /// As draining, because the driver broke the ring; ends when it is stopped.
    Broken,
}

/// One request in flight.
struct Slot {
    head: Head,
    chain: Chain,
    status: Option<Span>,
    kind: Kind,
    /// Bytes of data that move when it succeeds.
    bytes: u64,
    /// Sub-requests that have not ended; one more while the request is done in slices.
    pending: u16,
    outcome: Status,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            head: Head(0),
            chain: Chain::default(),
            status: None,
            kind: Kind::Flush,
            bytes: 0,
            pending: 0,
            outcome: Status::Ok,
        }
    }
}

/// A running queue.
pub struct Queue {
    setup: Setup,
    state: State,
    /// Never grows: requests in flight point into it.
    slots: Box<[Slot]>,
    free: Vec<u16>,
    ranges: Vec<Range>,
    /// Large requests, which are done in slices.
    ongoing: VecDeque<Ongoing>,
    /// For the next of them: what they have allocated is used again.
    spare: Vec<Ongoing>,
    unpublished: Unpublished,
    lead: Lead,
    calls: Calls,
    hold: Hold,
    /// What has been completed since a call waits.
    held_worth: u64,
    /// Is the driver shown what has ended in the middle of a turn?
    shows: bool,
}

impl Queue {
    /// A queue ready to run, whose driver is called once: what was published through an earlier call
    /// descriptor, or by an earlier daemon, may be unseen.
    pub fn new(mut setup: Setup, tuning: Tuning) -> Self {
        let size = setup.ring.size();
        let call = setup.call.take();
        let mut queue = Self {
            slots: (0..size).map(|_| Slot::default()).collect(),
            free: (0..size).rev().collect(),
            ranges: Vec::with_capacity(setup.rules.max_ranges as usize),
            ongoing: VecDeque::new(),
            spare: Vec::new(),
            state: State::Running,
            unpublished: Unpublished::default(),
            lead: Lead::default(),
            calls: tuning.calls(),
            hold: Hold::new(Instant::now()),
            held_worth: 0,
            shows: tuning.signal == Signal::CompletionsFirst,
            setup,
        };
        queue.log_ring();
        queue.set_call(call);
        queue
    }

    pub fn index(&self) -> u16 {
        self.setup.index
    }

    pub fn stats(&self) -> &QueueStats {
        &self.setup.stats
    }

    /// Starts the request in slot `at`, or ends it where that can be done at once.
    #[inline]
    fn begin(&mut self, at: u16, position: u16, budget: &mut Budget, channel: &mut dyn Channel) {
        let slot = &mut self.slots[usize::from(at)];
        slot.status = slot.chain.take_last_byte();
        slot.outcome = Status::Ok;
        slot.bytes = 0;
        budget.walked(slot.chain.spans());
        let (kind, parsed) = parse(&mut slot.chain, &self.setup.rules, &mut self.ranges);
        slot.kind = kind;
        let pace = self.setup.rules.pace;
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(status) => return self.finish(at, status),
        };
        if self.setup.is_lost() {
            // Its header may be half zeroes. Nothing of it has begun, and in the record it stays in flight.
            self.free.push(at);
            return;
        }
        let op = match parsed {
            Parsed::Read { bytes: 0, .. } | Parsed::Write { bytes: 0, .. } => {
                return self.finish(at, Status::Ok);
            }
            Parsed::Read { at: from, bytes } | Parsed::Write { at: from, bytes }
                if pace.work(kind, bytes) > SLICE =>
            {
                slot.bytes = bytes;
                return self.begin_transfer(at, from, bytes);
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
        if work > SLICE {
            self.begin_slices(at, &ranges);
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
    fn queue(&mut self, at: u16, op: Op, position: u16, channel: &mut dyn Channel) {
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
    fn finish(&mut self, at: u16, status: Status) {
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
    fn durability(&self) -> Durability {
        if self.setup.flush && self.setup.writeback.load(Ordering::Relaxed) {
            Durability::Volatile
        } else {
            Durability::Stable
        }
    }

    /// Makes the call that waits and asks for kicks, then looks once more; where that still stands, the driver kicks, and nothing needs to be done.
    pub fn arm(&mut self) -> Armed {
        self.release();
        if self.resumes() || self.has_slices() {
            return Armed::Pending;
        }
        if self.setup.ring.is_armed() {
            return Armed::Idle;
        }
        // Without a free slot there is nothing to take: a completion comes first.
        if self.state != State::Running || self.free.is_empty() || self.setup.is_lost() {
            return Armed::Idle;
        }
        let armed = self.setup.ring.arm();
        self.log_ring();
        match armed {
            Ok(Armed::Idle) if self.setup.kick.is_some() => Armed::Idle,
            // What is there already brings no kick, nor does a frontend that has none: the wish does not stand.
            Ok(_) => {
                self.disarm();
                Armed::Pending
            }
            Err(fault) => {
                self.disarm();
                self.broken(fault);
                Armed::Idle
            }
        }
    }

    /// Is nothing there, and does the driver kick with the next chain?
    pub fn becomes_idle(&mut self) -> bool {
        let may = self.setup.kick.is_some() && self.in_flight() == 0;
        let idle = may && self.arm() == Armed::Idle && self.setup.ring.is_armed();
        if !idle {
            self.disarm();
        }
        idle
    }

    /// Would a turn find anything? Then kicks are off from now on.
    pub fn ends_idleness(&mut self) -> bool {
        let finds = !matches!(self.setup.ring.look(), Ok(0));
        if finds {
            self.disarm();
        }
        finds
    }

    /// Asks for no kicks.
    #[inline]
    pub fn disarm(&mut self) {
        self.setup.ring.disarm();
        self.log_ring();
    }

    /// The descriptor that carries kicks.
    pub fn kick(&self) -> Option<&Arc<KickFd>> {
        self.setup.kick.as_ref()
    }

    /// Its driver may have kicked. Has it, as far as can be told?
    pub fn kicked(&self) -> bool {
        let heard = self.setup.kick.as_ref().is_some_and(|kick| kick.heard());
        self.setup.stats.kicks.add(heard.into());
        heard
    }

    /// Resolves addresses in `memory` from now on, which holds all that the old one held.
    pub fn set_memory(&mut self, memory: Arc<Memory>) {
        self.setup.memory = memory;
    }

    /// Takes nothing more.
    pub fn drain(&mut self) {
        self.state = State::Draining;
    }

    /// How many requests have not ended.
    pub fn in_flight(&self) -> u16 {
        let many = self.slots.len() - self.free.len();
        u16::try_from(many).expect("a queue has 32768 places at most")
    }

    /// Has it been told to drain, and is nothing in flight? If so, the index of the chain that would
    /// have been taken next.
    pub fn drained(&self) -> Option<u16> {
        let idle = self.in_flight() == 0 && !self.resumes();
        let done = self.state == State::Draining && idle;
        done.then(|| self.setup.ring.next().0)
    }

    /// The ring is broken, which counts as one chain: the turn was not in vain.
    #[cold]
    fn broken(&mut self, fault: PeerFault) -> u16 {
        if self.setup.is_lost() {
            return self.give_up();
        }
        if let Some(Admitted { withheld }) = self.setup.lines.rings.admits() {
            tracing::warn!(queue = self.setup.index, %fault, withheld, "the driver broke the ring: the queue stops");
        }
        self.setup.stats.peer_faults.add(1);
        if let Some(record) = &mut self.setup.record {
            record.give_up();
        }
        // One that drains goes on doing so: somebody waits for its end.
        if self.state == State::Running {
            self.state = State::Broken;
        }
        if let Some(error) = &self.setup.error {
            error.call();
        }
        1
    }
}

/// The slot `at`, borrowed apart from the rest of the queue.
fn slot_of(slots: &mut [Slot], at: u16) -> &mut Slot {
    &mut slots[usize::from(at)]
}

#[cfg(test)]
mod tests;
