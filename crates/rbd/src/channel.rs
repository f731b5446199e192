//! A channel of an image: requests go to librbd one by one, and their ends come by an inbox.

use std::sync::Arc;

use pollux_disk::inbox::Inbox;
use pollux_disk::{
    Armed, Channel, Completion, Durability, Failure, Op, Queued, Request, Ticket, WaitPoint,
};

use crate::aio::Flight;
use crate::shared::Shared;

pub struct RbdChannel {
    shared: Arc<Shared>,
    inbox: Inbox,
    /// By number, which is the ticket that the inbox is told.
    slots: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    flight: Arc<Flight>,
    /// What its owner calls the request.
    ticket: Ticket,
    next: Next,
}

/// What follows when a request has ended well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Its owner is told.
    Tell,
    /// A flush: it was to be stable, and may lie in a cache.
    Flush,
}

impl RbdChannel {
    pub fn new(shared: Arc<Shared>, wait: &WaitPoint) -> Self {
        Self {
            shared,
            inbox: Inbox::new(wait),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    fn free_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let number = self.slots.len();
            let address = self.inbox.address();
            self.slots.push(Slot {
                flight: Flight::new(number as u64, address, self.shared.opened()),
                ticket: Ticket(0),
                next: Next::Tell,
            });
            number
        })
    }

    fn start(&mut self, number: usize, op: &Op) -> Result<(), Failure> {
        let flight = &self.slots[number].flight;
        #[expect(unsafe_code, reason = "what was lent is lent on")]
        // SAFETY: the owner of the request keeps its memory until it is told of the end, which the inbox reports
        // before. A slot that is not free has one request, and the flush that follows it starts after its end.
        let started = unsafe { flight.start(self.shared.opened(), op) };
        self.shared.count_start(started)
    }
}

/// Does what `op` does have to be flushed before it is told?
fn stable(op: &Op) -> bool {
    matches!(
        op,
        Op::Write {
            durability: Durability::Stable,
            ..
        } | Op::WriteZeroes {
            durability: Durability::Stable,
            ..
        }
    )
}

/// Has it nothing to do?
fn empty(op: &Op) -> bool {
    match op {
        Op::Read { into: spans, .. } | Op::Write { from: spans, .. } => spans.bytes() == 0,
        Op::Discard { len, .. } | Op::WriteZeroes { len, .. } => *len == 0,
        Op::Flush => false,
    }
}

// SAFETY: a request ends when librbd has called back, after which it uses neither its memory nor its list of spans; or
// it was not started.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for RbdChannel {
    fn queue(&mut self, request: Request) -> Queued {
        let Request { ticket, op } = request;
        if let Err(failure) = self.shared.geometry().check(&op) {
            return Queued::Done(Err(failure));
        }
        if empty(&op) {
            return Queued::Done(Ok(()));
        }
        let number = self.free_slot();
        let slot = &mut self.slots[number];
        slot.ticket = ticket;
        slot.next = if stable(&op) && self.shared.caches_writes() {
            Next::Flush
        } else {
            Next::Tell
        };
        match self.start(number, &op) {
            Ok(()) => Queued::Pending,
            Err(failure) => {
                self.free.push(number);
                Queued::Done(Err(failure))
            }
        }
    }

    /// librbd has started everything already.
    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        if self.inbox.is_empty() {
            return;
        }
        let mut flushes = Vec::new();
        let Self {
            inbox,
            slots,
            free,
            shared,
            ..
        } = self;
        inbox.collect(&mut |ended| {
            let number = usize::try_from(ended.ticket.0).expect("a ticket of ours is a slot");
            let slot = &mut slots[number];
            shared.count_end(ended.result);
            if ended.result.is_ok() && slot.next == Next::Flush {
                slot.next = Next::Tell;
                flushes.push(number);
                return;
            }
            free.push(number);
            done(Completion {
                ticket: slot.ticket,
                result: ended.result,
            });
        });
        for number in flushes {
            if let Err(failure) = self.start(number, &Op::Flush) {
                self.free.push(number);
                done(Completion {
                    ticket: self.slots[number].ticket,
                    result: Err(failure),
                });
            }
        }
    }

    fn arm(&mut self) -> Armed {
        if self.inbox.is_empty() {
            Armed::Idle
        } else {
            Armed::Pending
        }
    }
}
