//! One owner's way into an image: what is known to lie in a file goes there, the rest to the thread that looks it up.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pollux_memory::Spans;
use slab::Slab;

use super::map::{Data, Inside, Mapped};
use super::shared::Shared;
use super::work::Job;
use crate::inbox::Inbox;
use crate::parts::{Cut, Leg, Requests, Whose, arm_all, moved};
use crate::{Armed, Channel, Completion, Durability, Op, Queued, Request, Ticket, WaitPoint};

pub struct ImageChannel {
    shared: Arc<Shared>,
    legs: Vec<Leg>,
    requests: Requests,
    /// Whose requests the legs work on.
    owners: Slab<Owner>,
    inbox: Inbox,
    /// What the next submit hands to the thread.
    staged: Vec<Job>,
    /// How many requests are with the thread.
    looked_up: usize,
    counts: Counts,
    /// Where the clusters of a request in pieces lie, each looked at once: what is not closed may become unknown at
    /// any moment.
    mapped: Vec<Mapped>,
}

/// How many requests went which way since the last submit.
#[derive(Default)]
struct Counts {
    direct: u64,
    looked_up: u64,
}

/// A request, and what it has entered.
struct Owner {
    ticket: Ticket,
    inside: Option<Inside>,
}

/// Where a request lies.
enum Way {
    /// In one piece of one file.
    Piece(usize, u64),
    /// In several, or nowhere: `mapped` says of each cluster where.
    Pieces,
    /// The slow thread has to look it up.
    Unknown,
}

impl ImageChannel {
    pub fn new(shared: &Arc<Shared>, wait: &WaitPoint) -> io::Result<Self> {
        shared.work.ensure_thread()?;
        let legs = shared.legs.iter().map(|disk| Leg::open(disk, wait));
        Ok(Self {
            legs: legs.collect::<io::Result<_>>()?,
            shared: Arc::clone(shared),
            requests: Requests::default(),
            owners: Slab::new(),
            inbox: Inbox::new(wait),
            staged: Vec::new(),
            looked_up: 0,
            counts: Counts::default(),
            mapped: Vec::new(),
        })
    }

    fn transfer(&mut self, request: Request, at: u64, spans: Spans) -> Queued {
        let len = spans.bytes();
        if len == 0 {
            return Queued::Done(Ok(()));
        }
        let bits = self.shared.cluster_bits;
        let Some(inside) = self.shared.map.enter(at >> bits..=(at + len - 1) >> bits) else {
            return self.look_up(request);
        };
        let Request { ticket, op } = request;
        let queued = match self.way(at, len, op) {
            Way::Piece(leg, there) => self.send(ticket, inside, leg, moved(op, there, spans)),
            Way::Pieces => self.split(ticket, inside, (at, len), spans, op),
            Way::Unknown => {
                self.shared.map.leave(inside);
                return self.look_up(request);
            }
        };
        self.counts.direct += 1;
        queued
    }

    /// Where the range lies, whose chunks were entered.
    fn way(&mut self, at: u64, len: u64, op: Op) -> Way {
        let bits = self.shared.cluster_bits;
        let writes = matches!(op, Op::Write { .. });
        let (first, last) = (at >> bits, (at + len - 1) >> bits);
        let mut piece = None;
        for cluster in first..=last {
            match self.shared.map.get(cluster) {
                Mapped::Zero if !writes => return self.pieces(first..=last, writes),
                Mapped::Data(data) if data.writable || !writes => {
                    let begins = data.at.wrapping_sub((cluster - first) << bits);
                    let (leg, start) = *piece.get_or_insert((data.leg, begins));
                    if (leg, start) != (data.leg, begins) {
                        return self.pieces(first..=last, writes);
                    }
                }
                _ => return Way::Unknown,
            }
        }
        let within = at & ((1 << bits) - 1);
        piece.map_or(Way::Unknown, |(leg, start)| Way::Piece(leg, start + within))
    }

    /// Are all of `clusters` known? Where they lie is noted.
    fn pieces(&mut self, clusters: RangeInclusive<u64>, writes: bool) -> Way {
        let map = &self.shared.map;
        self.mapped.clear();
        self.mapped.extend(clusters.map(|cluster| map.get(cluster)));
        let known = |mapped: &Mapped| match mapped {
            Mapped::Zero => !writes,
            Mapped::Data(data) => data.writable || !writes,
            Mapped::Unknown => false,
        };
        if self.mapped.iter().all(known) {
            Way::Pieces
        } else {
            Way::Unknown
        }
    }

    fn send(&mut self, ticket: Ticket, inside: Inside, leg: usize, op: Op) -> Queued {
        let owner = self.owners.vacant_entry();
        let whose = Whose::Sole(Ticket(owner.key() as u64));
        match self.requests.send(&mut self.legs[leg], op, whose, None) {
            None => {
                let inside = Some(inside);
                owner.insert(Owner { ticket, inside });
                Queued::Pending
            }
            Some(outcome) => {
                self.shared.map.leave(inside);
                Queued::Done(outcome)
            }
        }
    }

    fn split(
        &mut self,
        ticket: Ticket,
        inside: Inside,
        (mut at, len): (u64, u64),
        spans: Spans,
        op: Op,
    ) -> Queued {
        let Self {
            legs,
            requests,
            mapped,
            ..
        } = self;
        let inside = Some(inside);
        let owner = self.owners.insert(Owner { ticket, inside });
        let parent = requests.begin(Ticket(owner as u64), None);
        let bits = self.shared.cluster_bits;
        let end = at + len;
        let mut cut = Cut::new(&spans);
        let mut zeroes = Vec::new();
        for one in mapped {
            let within = at & ((1 << bits) - 1);
            let here = ((1 << bits) - within).min(end - at);
            match *one {
                Mapped::Data(Data { leg, at: there, .. }) => {
                    let there = (there + within, here);
                    requests.add(&mut legs[leg], there, &mut cut, op, parent);
                }
                Mapped::Zero | Mapped::Unknown => cut.take(here, &mut zeroes),
            }
            at += here;
        }
        zeroes.into_iter().for_each(pollux_memory::Span::zero);
        for leg in legs {
            requests.send_open(leg, op, parent);
        }
        let queued = requests.begun(parent);
        if queued != Queued::Pending {
            leave(&self.shared, &mut self.owners, owner);
        }
        queued
    }

    /// The files that are written make durable what was written to them.
    fn flush(&mut self, ticket: Ticket) -> Queued {
        let inside = None;
        let owner = self.owners.insert(Owner { ticket, inside });
        let parent = self.requests.begin(Ticket(owner as u64), None);
        for leg in &mut self.legs[..self.shared.written] {
            self.requests.part(leg, Op::Flush, parent, None);
        }
        let queued = self.requests.begun(parent);
        if queued != Queued::Pending {
            leave(&self.shared, &mut self.owners, owner);
        }
        queued
    }

    /// Hands a request to the thread that may wait.
    fn look_up(&mut self, request: Request) -> Queued {
        let to = self.inbox.address();
        self.staged.push(Job { request, to });
        self.looked_up += 1;
        self.counts.looked_up += 1;
        Queued::Pending
    }
}

/// A request has ended: whose it was.
fn leave(shared: &Shared, owners: &mut Slab<Owner>, owner: usize) -> Ticket {
    let Owner { ticket, inside } = owners.remove(owner);
    if let Some(inside) = inside {
        shared.map.leave(inside);
    }
    ticket
}

// SAFETY: a request ends when its parts have, which the channels of the files vouch for, or when the thread has
// done it, which uses what it was lent no longer than that (`work`).
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for ImageChannel {
    fn queue(&mut self, request: Request) -> Queued {
        if let Err(failure) = self.shared.geometry().check(&request.op) {
            return Queued::Done(Err(failure));
        }
        match request.op {
            Op::Read { at, into } => self.transfer(request, at, into),
            // To one file of two: the tables of the other are to be durable as well, also those that another process has
            // left.
            Op::Write { durability, .. }
                if self.shared.written > 1
                    && (self.shared.writethrough || durability == Durability::Stable) =>
            {
                self.look_up(request)
            }
            Op::Write { at, from, .. } => self.transfer(request, at, from),
            Op::Discard { len: 0, .. } | Op::WriteZeroes { len: 0, .. } => Queued::Done(Ok(())),
            Op::Discard { .. } | Op::WriteZeroes { .. } => self.look_up(request),
            Op::Flush => self.flush(request.ticket),
        }
    }

    fn submit(&mut self) {
        for leg in &mut self.legs {
            leg.submit();
        }
        self.shared.work.submit(&mut self.staged);
        let Counts { direct, looked_up } = std::mem::take(&mut self.counts);
        self.shared.totals.add(direct, looked_up);
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let Self {
            legs,
            requests,
            owners,
            shared,
            ..
        } = self;
        for leg in legs.iter_mut().filter(|leg| leg.in_flight > 0) {
            leg.reap(requests, &mut |Completion { ticket, result }| {
                let owner = usize::try_from(ticket.0).expect("a ticket of ours is a key");
                let ticket = leave(shared, owners, owner);
                done(Completion { ticket, result });
            });
        }
        self.looked_up -= self.inbox.collect(done);
    }

    fn arm(&mut self) -> Armed {
        if !self.inbox.is_empty() {
            return Armed::Pending;
        }
        arm_all(&mut self.legs)
    }
}

/// Nothing may be in flight: see [`Channel`]. What is with the thread nevertheless is waited for, as its memory is in
/// use; the channels of the files do the same.
impl Drop for ImageChannel {
    fn drop(&mut self) {
        while self.looked_up > 0 || !self.owners.is_empty() {
            self.submit();
            self.reap(&mut |_| ());
            thread::sleep(Duration::from_millis(1));
        }
    }
}
