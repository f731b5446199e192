//! One channel of a stacked disk, over a channel of each leg.

use std::io;
use std::sync::Arc;

use pollux_memory::{Loan, Span, Spans};
use slab::Slab;

use super::build::Whole;
use super::counts::Counts;
use super::map::Stretch;
use super::{PollScope, Shared};
use crate::{Armed, Channel, Completion, Failure, Op, Queued, Request, Ticket, WaitPoint};

/// How a request ends.
type Outcome = Result<(), Failure>;

/// A channel of a [`Stack`](super::Stack).
pub struct StackChannel {
    legs: Vec<Leg>,
    requests: Requests,
    whole: Arc<Whole>,
    generation: u64,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
}

/// One leg, as this channel uses it.
struct Leg {
    channel: Box<dyn Channel>,
    /// How many sub-requests of ours it works on.
    in_flight: usize,
    /// It was handed something, or looked at, since it last was to submit.
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
struct Requests {
    subs: Slab<Sub>,
    parents: Slab<Parent>,
    /// Empty lists, for the next that are made.
    lists: Vec<Vec<Span>>,
    /// How many sub-requests were sent, and not counted yet.
    sent: u64,
}

/// A request to a leg.
struct Sub {
    whose: Whose,
    /// What was lent with it, if that is a list of ours.
    loan: Option<Loan>,
}

/// Whom a sub-request is a part of.
enum Whose {
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
}

impl StackChannel {
    pub fn new(shared: &Arc<Shared>, wait: &WaitPoint) -> io::Result<Self> {
        let leg = |disk: &Arc<dyn crate::Disk>| {
            Ok(Leg {
                channel: disk.open_channel(wait)?,
                in_flight: 0,
                touched: false,
                open: None,
            })
        };
        Ok(Self {
            legs: shared.legs.iter().map(leg).collect::<io::Result<_>>()?,
            requests: Requests::default(),
            generation: shared.generation(),
            whole: shared.whole(),
            shared: Arc::clone(shared),
            counts: shared.tally.open(),
        })
    }

    #[cold]
    fn renew(&mut self) {
        self.generation = self.shared.generation();
        self.whole = self.shared.whole();
    }

    /// Reads or writes: splits at the borders of chunks. What is adjacent on a leg stays together.
    #[inline]
    fn transfer(&mut self, ticket: Ticket, at: u64, spans: Spans, op: Op) -> Queued {
        let len = spans.bytes();
        if len == 0 {
            return Queued::Done(Ok(()));
        }
        let (stretch, run) = self.whole.map.find(at);
        if len <= run {
            return self.pass(ticket, stretch.leg, moved(op, stretch.at, spans));
        }
        self.split(ticket, at, len, spans, op)
    }

    /// Passes a whole request on.
    #[inline]
    fn pass(&mut self, ticket: Ticket, leg: usize, op: Op) -> Queued {
        let whose = Whose::Sole(ticket);
        match self.requests.send(&mut self.legs[leg], op, whose, None) {
            None => Queued::Pending,
            Some(outcome) => Queued::Done(outcome),
        }
    }

    fn split(&mut self, ticket: Ticket, mut at: u64, len: u64, spans: Spans, op: Op) -> Queued {
        let Self {
            legs,
            requests,
            whole,
            ..
        } = self;
        let parent = requests.begin(ticket);
        let end = at + len;
        let mut cut = Cut::new(&spans);
        while at < end {
            let (Stretch { leg, at: there }, run) = whole.map.find(at);
            let here = run.min(end - at);
            let leg = &mut legs[leg];
            if leg
                .open
                .as_ref()
                .is_some_and(|open| open.at + open.len != there)
            {
                requests.send_open(leg, op, parent);
            }
            let open = leg.open.get_or_insert_with(|| Open {
                at: there,
                len: 0,
                spans: requests.lists.pop().unwrap_or_default(),
            });
            open.len += here;
            cut.take(here, &mut open.spans);
            at += here;
        }
        for leg in legs.iter_mut().filter(|leg| leg.open.is_some()) {
            requests.send_open(leg, op, parent);
        }
        requests.begun(parent)
    }

    /// Discards or zeroes: one range for each leg of each target.
    fn range(&mut self, ticket: Ticket, at: u64, len: u64, op: Op) -> Queued {
        let Self {
            legs,
            requests,
            whole,
            ..
        } = self;
        let parent = requests.begin(ticket);
        for (Stretch { leg, at }, len) in whole.map.parts(at, len) {
            requests.part(&mut legs[leg], ranged(op, at, len), parent, None);
        }
        requests.begun(parent)
    }

    /// Every leg has its part in a flush.
    fn flush(&mut self, ticket: Ticket) -> Queued {
        let Self { legs, requests, .. } = self;
        let parent = requests.begin(ticket);
        for leg in legs {
            requests.part(leg, Op::Flush, parent, None);
        }
        requests.begun(parent)
    }
}

/// `op` somewhere else, and with other memory.
#[inline]
fn moved(op: Op, at: u64, spans: Spans) -> Op {
    match op {
        Op::Write { durability, .. } => Op::Write {
            at,
            from: spans,
            durability,
        },
        _ => Op::Read { at, into: spans },
    }
}

/// `op` over another range.
fn ranged(op: Op, at: u64, len: u64) -> Op {
    match op {
        Op::WriteZeroes {
            unmap, durability, ..
        } => Op::WriteZeroes {
            at,
            len,
            unmap,
            durability,
        },
        _ => Op::Discard { at, len },
    }
}

/// Spans, from which one stretch after the other is taken.
struct Cut<'spans> {
    spans: std::slice::Iter<'spans, Span>,
    rest: Span,
}

impl<'spans> Cut<'spans> {
    fn new(spans: &'spans [Span]) -> Self {
        Self {
            spans: spans.iter(),
            rest: Span::EMPTY,
        }
    }

    /// Adds the next `len` bytes to `list`.
    fn take(&mut self, len: u64, list: &mut Vec<Span>) {
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

impl Requests {
    /// Hands a sub-request to `leg`. How it ended, if it did at once.
    #[inline]
    fn send(&mut self, leg: &mut Leg, op: Op, whose: Whose, loan: Option<Loan>) -> Option<Outcome> {
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
    fn part(&mut self, leg: &mut Leg, op: Op, parent: usize, loan: Option<Loan>) {
        let ended = self.send(leg, op, Whose::Part(parent), loan);
        let parent = &mut self.parents[parent];
        match ended {
            None => parent.pending += 1,
            Some(outcome) => parent.outcome = parent.outcome.and(outcome),
        }
    }

    /// The part of `parent` that was put together for `leg`.
    fn send_open(&mut self, leg: &mut Leg, op: Op, parent: usize) {
        if let Some(Open { at, spans, .. }) = leg.open.take() {
            let loan = Loan::of(spans);
            #[expect(unsafe_code, reason = "a part is lent on")]
            // SAFETY: the loan is kept with the sub-request (`Sub`) until that has ended.
            let spans = unsafe { loan.spans() };
            let op = moved(op, at, spans);
            self.part(leg, op, parent, Some(loan));
        }
    }

    fn begin(&mut self, ticket: Ticket) -> usize {
        self.parents.insert(Parent {
            ticket,
            pending: 1,
            outcome: Ok(()),
        })
    }

    /// All parts of `parent` are made.
    fn begun(&mut self, parent: usize) -> Queued {
        match self.ended(parent, Ok(())) {
            Some(ended) => Queued::Done(ended.result),
            None => Queued::Pending,
        }
    }

    /// A part has ended. The last of them ends the parent: until then, its memory is in use.
    #[inline]
    fn ended(&mut self, key: usize, outcome: Outcome) -> Option<Completion> {
        let parent = &mut self.parents[key];
        parent.outcome = parent.outcome.and(outcome);
        parent.pending -= 1;
        (parent.pending == 0).then(|| {
            let Parent {
                ticket, outcome, ..
            } = self.parents.remove(key);
            Completion {
                ticket,
                result: outcome,
            }
        })
    }

    /// A sub-request has come back. What of its owner's has ended by that?
    #[inline]
    fn back(&mut self, Completion { ticket, result }: Completion) -> Option<Completion> {
        let key = usize::try_from(ticket.0).expect("a ticket of ours is a key");
        let Sub { whose, loan } = self.subs.remove(key);
        self.recycle(loan);
        match whose {
            Whose::Sole(ticket) => Some(Completion { ticket, result }),
            Whose::Part(parent) => self.ended(parent, result),
        }
    }
}

// SAFETY: a request ends when all its parts have, which the channels of the legs vouch for.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for StackChannel {
    #[inline]
    fn queue(&mut self, Request { ticket, op }: Request) -> Queued {
        if self.generation != self.shared.generation() {
            self.renew();
        }
        if let Err(failure) = self.whole.geometry.check(&op) {
            return Queued::Done(Err(failure));
        }
        let queued = match op {
            Op::Read { at, into } => self.transfer(ticket, at, into, op),
            Op::Write { at, from, .. } => self.transfer(ticket, at, from, op),
            Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => {
                self.range(ticket, at, len, op)
            }
            Op::Flush => self.flush(ticket),
        };
        self.counts.requests.add(1);
        let sent = std::mem::take(&mut self.requests.sent);
        self.counts.sub_requests.add(sent);
        queued
    }

    #[inline]
    fn submit(&mut self) {
        for leg in &mut self.legs {
            if std::mem::take(&mut leg.touched) {
                leg.channel.submit();
            }
        }
    }

    /// Looks at the legs that work for this channel, each as if it were the only one.
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let all = self.shared.scope == PollScope::EveryQueue;
        let (mut polls, mut in_vain) = (0, 0);
        let Self { legs, requests, .. } = self;
        for leg in legs {
            if leg.in_flight == 0 && !all {
                continue;
            }
            let mut back = 0;
            leg.channel.reap(&mut |ended| {
                back += 1;
                if let Some(ended) = requests.back(ended) {
                    done(ended);
                }
            });
            // It may have queued what follows.
            leg.touched = true;
            leg.in_flight -= back;
            polls += 1;
            in_vain += u64::from(back == 0);
        }
        self.counts.polls.add(polls);
        self.counts.empty_polls.add(in_vain);
    }

    /// Nothing can end on a leg that works on nothing.
    fn arm(&mut self) -> Armed {
        let mut armed = Armed::Idle;
        for leg in self.legs.iter_mut().filter(|leg| leg.in_flight > 0) {
            match leg.channel.arm() {
                Armed::Idle => {}
                Armed::Pending => return Armed::Pending,
                Armed::CannotSleep => armed = Armed::CannotSleep,
            }
        }
        armed
    }
}

impl Drop for StackChannel {
    fn drop(&mut self) {
        self.shared.tally.close(&self.counts);
    }
}
