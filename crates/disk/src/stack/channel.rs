//! One channel of a stacked disk, over a channel of each leg.

use std::io;
use std::sync::Arc;

use pollux_memory::Spans;

use super::build::Whole;
use super::counts::Counts;
use super::map::Stretch;
use super::shared::{PollScope, Shared};
use crate::parts::{Cut, Leg, Requests, Whole as Write, Whose, arm_all, moved, replacements};
use crate::{Armed, Channel, Completion, Durability, Op, Queued, Request, Ticket, WaitPoint};

/// A channel of a [`Stack`](super::Stack).
pub struct StackChannel {
    legs: Vec<Leg>,
    requests: Requests,
    whole: Arc<Whole>,
    generation: u64,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
}

impl StackChannel {
    pub fn new(shared: &Arc<Shared>, wait: &WaitPoint) -> io::Result<Self> {
        let legs = shared.legs.iter().map(|disk| Leg::open(disk, wait));
        Ok(Self {
            legs: legs.collect::<io::Result<_>>()?,
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
        let parent = requests.begin(ticket, written(legs, op));
        let end = at + len;
        let mut cut = Cut::new(&spans);
        while at < end {
            let (Stretch { leg, at: there }, run) = whole.map.find(at);
            let here = run.min(end - at);
            requests.add(&mut legs[leg], (there, here), &mut cut, op, parent);
            at += here;
        }
        for leg in legs {
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
        let parent = requests.begin(ticket, written(legs, op));
        for (Stretch { leg, at }, len) in whole.map.parts(at, len) {
            requests.part(&mut legs[leg], ranged(op, at, len), parent, None);
        }
        requests.begun(parent)
    }

    #[inline]
    fn start(&mut self, ticket: Ticket, op: Op) -> Queued {
        match op {
            Op::Read { at, into } => self.transfer(ticket, at, into, op),
            Op::Write { at, from, .. } => self.transfer(ticket, at, from, op),
            Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => {
                self.range(ticket, at, len, op)
            }
            Op::Flush => self.flush(ticket),
        }
    }

    /// Writes of several parts are complete, or are to be done again.
    fn end_written(&mut self, done: &mut dyn FnMut(Completion)) {
        let now = replacements(&self.legs);
        while let Some((ticket, Write { op, replacements })) = self.requests.written.pop() {
            let queued = if now == Some(replacements) {
                Queued::Done(Ok(()))
            } else {
                self.start(ticket, op)
            };
            if let Queued::Done(result) = queued {
                done(Completion { ticket, result });
            }
        }
    }

    /// Every leg has its part in a flush.
    fn flush(&mut self, ticket: Ticket) -> Queued {
        let Self { legs, requests, .. } = self;
        let parent = requests.begin(ticket, None);
        for leg in legs {
            requests.part(leg, Op::Flush, parent, None);
        }
        requests.begun(parent)
    }
}

/// `op` as a whole, if it is a write that may be forgotten.
fn written(legs: &[Leg], op: Op) -> Option<Write> {
    let replacements = match op {
        Op::Write { durability, .. } | Op::WriteZeroes { durability, .. }
            if durability == Durability::Volatile =>
        {
            replacements(legs)?
        }
        _ => return None,
    };
    Some(Write { op, replacements })
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
        let queued = self.start(ticket, op);
        self.counts.requests.add(1);
        let sent = std::mem::take(&mut self.requests.sent);
        self.counts.sub_requests.add(sent);
        queued
    }

    #[inline]
    fn submit(&mut self) {
        for leg in &mut self.legs {
            leg.submit();
        }
    }

    /// Polls the legs that work for this channel, each as if it were the only one.
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let all = self.shared.scope == PollScope::EveryQueue;
        let (mut polls, mut empty) = (0, 0);
        let Self { legs, requests, .. } = self;
        for leg in legs {
            if leg.in_flight == 0 && !all {
                continue;
            }
            let back = leg.reap(requests, done);
            polls += 1;
            empty += u64::from(back == 0);
        }
        self.counts.polls.add(polls);
        self.counts.empty_polls.add(empty);
        if !self.requests.written.is_empty() {
            self.end_written(done);
        }
    }

    fn arm(&mut self) -> Armed {
        arm_all(&mut self.legs)
    }

    fn replacements(&self) -> Option<u64> {
        replacements(&self.legs)
    }
}

impl Drop for StackChannel {
    fn drop(&mut self) {
        self.shared.tally.close(&self.counts);
    }
}
