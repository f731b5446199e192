//! A request in parts: to each leg its own, and one end when the last part has ended.
//!
//! What channels have in common that hand requests on to other channels ([`crate::stack`], [`crate::qcow2`]).

use std::io;
use std::sync::Arc;

use pollux_memory::{Loan, Span, Spans};
use slab::Slab;

use crate::{Armed, Channel, Completion, Disk, Failure, Op, Queued, Request, Ticket, WaitPoint};

/// How a request ends.
pub type Outcome = Result<(), Failure>;

/// One leg, as this channel uses it.
pub struct Leg {
    channel: Box<dyn Channel>,
    /// How many sub-requests of ours it works on.
    pub in_flight: usize,
    /// It was handed something, or polled, since it last was to submit.
    touched: bool,
    /// The sub-request that is being put together.
    open: Option<Open>,
}

/// A stretch of a leg, and the memory that goes with it.
struct Open {
    at: u64,
    len: u64,
    spans: Vec<Span>,
}

/// What is in flight. Nothing of it is allocated anew once there were as many before.
#[derive(Default)]
pub struct Requests {
    subs: Slab<Sub>,
    parents: Slab<Parent>,
    /// Empty lists, for the next that are made.
    lists: Vec<Vec<Span>>,
    /// How many sub-requests were sent, and not counted yet.
    pub sent: u64,
    /// Writes of which all parts have ended well, and one may have been forgotten since: see [`Whole`].
    pub written: Vec<(Ticket, Whole)>,
}

/// A write of several parts. Its first parts may have been in a cache of a server that is gone by the time the last one
/// ends: then all of it is to be done again.
#[derive(Clone, Copy)]
pub struct Whole {
    pub op: Op,
    /// How often servers of its legs had been replaced before ([`replacements`]).
    pub replacements: u64,
}

/// A request to a leg.
struct Sub {
    whose: Whose,
    /// What was lent with it, if that is a list of ours.
    loan: Option<Loan>,
}

/// What a sub-request is a part of.
pub enum Whose {
    /// It is all of that request.
    Sole(Ticket),
    /// One of several of that parent.
    Part(usize),
}

/// A request of several parts.
struct Parent {
    ticket: Ticket,
    /// How many have not ended; one more while they are being made.
    pending: usize,
    outcome: Outcome,
    /// Itself, if it is a write.
    whole: Option<Whole>,
}

/// `op` somewhere else, and with other memory.
#[inline]
pub fn moved(op: Op, at: u64, spans: Spans) -> Op {
    match op {
        Op::Write { durability, .. } => Op::Write {
            at,
            from: spans,
            durability,
        },
        _ => Op::Read { at, into: spans },
    }
}

/// Spans, from which one stretch after the other is taken.
pub struct Cut<'spans> {
    spans: std::slice::Iter<'spans, Span>,
    rest: Span,
}

impl<'spans> Cut<'spans> {
    /// From the first byte of `spans` on.
    pub fn new(spans: &'spans [Span]) -> Self {
        Self {
            spans: spans.iter(),
            rest: Span::EMPTY,
        }
    }

    /// Adds the next `len` bytes to `list`.
    pub fn take(&mut self, len: u64, list: &mut Vec<Span>) {
        let mut left = usize::try_from(len).expect("it is in memory");
        while left > 0 {
            if self.rest.is_empty() {
                self.rest = *self.spans.next().expect("as many bytes as were counted");
                continue;
            }
            let (here, rest) = self.rest.split_at(left.min(self.rest.len()));
            list.push(here);
            left -= here.len();
            self.rest = rest;
        }
    }
}

impl Leg {
    /// A channel of `disk`.
    pub fn open(disk: &Arc<dyn Disk>, wait: &WaitPoint) -> io::Result<Self> {
        Ok(Self {
            channel: disk.open_channel(wait)?,
            in_flight: 0,
            touched: false,
            open: None,
        })
    }

    /// Starts what it was handed.
    #[inline]
    pub fn submit(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.channel.submit();
        }
    }

    /// Tells `done` of the requests that have ended with a part of this leg; how many parts were there?
    pub fn reap(&mut self, requests: &mut Requests, done: &mut dyn FnMut(Completion)) -> usize {
        let mut back = 0;
        self.channel.reap(&mut |ended| {
            back += 1;
            if let Some(ended) = requests.back(ended) {
                done(ended);
            }
        });
        // It may have queued what follows.
        self.touched = true;
        self.in_flight -= back;
        back
    }

    /// Nothing can end on a leg that works on nothing.
    pub fn arm(&mut self) -> Armed {
        match self.in_flight {
            0 => Armed::Idle,
            _ => self.channel.arm(),
        }
    }
}

impl Requests {
    /// Hands a sub-request to `leg`. How it ended, if it did at once.
    #[inline]
    pub fn send(
        &mut self,
        leg: &mut Leg,
        op: Op,
        whose: Whose,
        loan: Option<Loan>,
    ) -> Option<Outcome> {
        let entry = self.subs.vacant_entry();
        let ticket = Ticket(entry.key() as u64);
        leg.touched = true;
        self.sent += 1;
        match leg.channel.queue(Request { ticket, op }) {
            Queued::Pending => {
                leg.in_flight += 1;
                entry.insert(Sub { whose, loan });
                None
            }
            Queued::Done(outcome) => {
                self.recycle(loan);
                Some(outcome)
            }
        }
    }

    /// The request that a list was lent to has ended.
    #[inline]
    fn recycle(&mut self, loan: Option<Loan>) {
        if let Some(loan) = loan {
            let mut list = loan.end();
            list.clear();
            self.lists.push(list);
        }
    }

    /// A part of `parent`.
    pub fn part(&mut self, leg: &mut Leg, op: Op, parent: usize, loan: Option<Loan>) {
        let ended = self.send(leg, op, Whose::Part(parent), loan);
        let parent = &mut self.parents[parent];
        match ended {
            None => parent.pending += 1,
            Some(outcome) => parent.outcome = parent.outcome.and(outcome),
        }
    }

    /// Adds the next `len` bytes of `cut`, which belong to `at` of `leg`, to the part of `parent` that is put together
    /// for it; where they do not follow what is there, that is sent and a new one begun.
    pub fn add(
        &mut self,
        leg: &mut Leg,
        (at, len): (u64, u64),
        cut: &mut Cut<'_>,
        op: Op,
        parent: usize,
    ) {
        let apart = |open: &Open| open.at + open.len != at;
        if leg.open.as_ref().is_some_and(apart) {
            self.send_open(leg, op, parent);
        }
        let open = leg.open.get_or_insert_with(|| Open {
            at,
            len: 0,
            spans: self.lists.pop().unwrap_or_default(),
        });
        open.len += len;
        cut.take(len, &mut open.spans);
    }

    /// Sends the part of `parent` that was put together for `leg`.
    pub fn send_open(&mut self, leg: &mut Leg, op: Op, parent: usize) {
        if let Some(Open { at, spans, .. }) = leg.open.take() {
            let loan = Loan::of(spans);
            #[expect(unsafe_code, reason = "a part is lent on")]
            // SAFETY: the loan is kept with the sub-request (`Sub`) until that has ended.
            let spans = unsafe { loan.spans() };
            let op = moved(op, at, spans);
            self.part(leg, op, parent, Some(loan));
        }
    }

    /// A request of several parts, which are made from now on; [`Requests::written`] tells of its end if it is a write,
    /// given as `whole`.
    pub fn begin(&mut self, ticket: Ticket, whole: Option<Whole>) -> usize {
        self.parents.insert(Parent {
            ticket,
            pending: 1,
            outcome: Ok(()),
            whole,
        })
    }

    /// All parts of `parent` are made. Where all have ended by now, no server has any of them.
    pub fn begun(&mut self, parent: usize) -> Queued {
        match self.ended(parent, Ok(())) {
            Some(Parent { outcome, .. }) => Queued::Done(outcome),
            None => Queued::Pending,
        }
    }

    /// A part has ended. The last of them ends the parent: until then, its memory is in use.
    #[inline]
    fn ended(&mut self, key: usize, outcome: Outcome) -> Option<Parent> {
        let parent = &mut self.parents[key];
        parent.outcome = parent.outcome.and(outcome);
        parent.pending -= 1;
        (parent.pending == 0).then(|| self.parents.remove(key))
    }

    /// A sub-request has come back. What of its owner's has ended by that?
    #[inline]
    fn back(&mut self, Completion { ticket, result }: Completion) -> Option<Completion> {
        let key = usize::try_from(ticket.0).expect("a ticket of ours is a key");
        let Sub { whose, loan } = self.subs.remove(key);
        self.recycle(loan);
        let parent = match whose {
            Whose::Sole(ticket) => return Some(Completion { ticket, result }),
            Whose::Part(parent) => self.ended(parent, result)?,
        };
        let Parent {
            ticket, outcome, ..
        } = parent;
        if let (Some(whole), Ok(())) = (parent.whole, outcome) {
            self.written.push((ticket, whole));
            return None;
        }
        Some(Completion {
            ticket,
            result: outcome,
        })
    }
}

/// How often servers of these legs were replaced. `None` where none of them can be.
pub fn replacements(legs: &[Leg]) -> Option<u64> {
    let each = legs.iter().filter_map(|leg| leg.channel.replacements());
    each.reduce(u64::wrapping_add)
}

/// Arms every leg: one with something to reap is enough not to sleep.
pub fn arm_all(legs: &mut [Leg]) -> Armed {
    let mut armed = Armed::Idle;
    for leg in legs {
        match leg.arm() {
            Armed::Idle => {}
            Armed::Pending => return Armed::Pending,
            Armed::CannotSleep => armed = Armed::CannotSleep,
        }
    }
    armed
}
