//! The requests of one queue, whoever owns it: everything but locks, sleeping and telling owners.
//!
//! ```text
//! accept ──fits as it is────────────────────────────▶ staged ──▶ reap ──▶ the owner
//!    └──too large, not shared, to be flushed──▶ backlog ──┘        │
//!                                                  ▲               │ a part: once its siblings have
//!                                                  └── flush ◀─────┘ ended
//! ```
//! What is lent with a request is used until the request has ended. The driver reads nothing back that
//! the device can write, but the used ring and the status byte.

mod replay;

use std::collections::VecDeque;
use std::sync::Arc;

use pollux_blk::{Kind, RequestHeader, SECTOR, Status};
use pollux_disk::{Access, Durability, Failure, Op};
use pollux_memory::Span;
use pollux_ring::{Armed, DriverEnd, Glance, Notify, PeerFault, RingIndex, UsedElem};
use rustix::io::Errno;
use slab::Slab;

use crate::ask::{Ask, Part, count, data_of, parts, wire};
use crate::bounce::Bounce;
use crate::data::Way;
use crate::device::{Device, Facts};
use crate::limits::{FRAME, within};
use crate::memory::address;
use crate::rings::Rings;
use crate::table::View;

/// Who is told when a chain has come back.
#[derive(Debug)]
enum Whose<T> {
    /// The owner of the request, which it was all of.
    Sole(T),
    /// A request of several chains, by its key.
    Part(usize),
}

/// A chain in flight.
#[derive(Debug)]
struct Flight<T> {
    whose: Whose<T>,
    /// None: it is all of the request, in place.
    cut: Option<Box<Cut>>,
}

/// A chain that is not simply all of its request.
#[derive(Debug)]
struct Cut {
    part: Part,
    bounce: Option<Bounce>,
}

/// A chain that is to be staged.
#[derive(Debug)]
struct Job<T> {
    ask: Ask,
    part: Part,
    whose: Whose<T>,
    /// Of one that was staged before, at a server that is gone.
    bounce: Option<Bounce>,
}

/// A request of several chains.
#[derive(Debug)]
struct Whole<T> {
    owner: T,
    parts: usize,
    failure: Option<Failure>,
    /// A flush follows: the write is to be on stable storage.
    flush: bool,
}

/// What became of a job.
enum Staging<T> {
    Staged,
    NoRoom(Job<T>),
    Failed(Whose<T>, Failure),
}

/// The requests of one queue; `T` names a request to its owner.
#[derive(Debug)]
pub struct Core<T> {
    ring: DriverEnd,
    rings: Arc<Rings>,
    index: u16,
    /// Which server knows the rings.
    epoch: u64,
    /// What the server before that knew. Should it have been slow to let go, nobody else has that memory yet.
    outlived: Option<Arc<Rings>>,
    /// What is in flight, by head: beside the flights, as it is looked at only to hand it to another server.
    asks: Box<[Ask]>,
    /// By head.
    flights: Box<[Option<Flight<T>>]>,
    backlog: VecDeque<Job<T>>,
    wholes: Slab<Whole<T>>,
    /// Chains that could not be staged, for the next [`Core::reap`].
    failed: Vec<(Whose<T>, Failure)>,
    /// The buffers of a chain while it is put together.
    readable: Vec<pollux_ring::Buffer>,
    writable: Vec<pollux_ring::Buffer>,
    device: Arc<Device>,
    facts: Arc<Facts>,
    /// Which memory the device knows.
    view: View,
    /// The device is gone, and so is all that was in flight.
    given_up: bool,
}

impl<T> Core<T> {
    /// The requests of queue `index`, which runs and has none yet.
    pub fn new(device: Arc<Device>, index: u16) -> Self {
        let (epoch, rings) = device.claim(index);
        Self {
            ring: rings.driver_end(),
            index,
            epoch,
            outlived: None,
            asks: vec![Ask::Op(Op::Flush); usize::from(rings.size())].into(),
            flights: (0..rings.size()).map(|_| None).collect(),
            rings,
            backlog: VecDeque::new(),
            wholes: Slab::new(),
            failed: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
            facts: device.facts(),
            view: View::default(),
            given_up: false,
            device,
        }
    }

    /// Is it known how `ask` ends before the device is asked?
    fn foresee(&mut self, ask: &Ask) -> Option<Result<(), Failure>> {
        if self.device.generation() != self.facts.generation {
            self.facts = self.device.facts();
        }
        if self.device.is_lost() {
            return Some(Err(Failure::Lost));
        }
        let Ask::Op(op) = ask else { return None };
        if let Err(failure) = self.facts.geometry.check(op) {
            return Some(Err(failure));
        }
        let nothing = match op {
            Op::Read { into: spans, .. } | Op::Write { from: spans, .. } => spans.bytes() == 0,
            Op::Discard { len, .. } | Op::WriteZeroes { len, .. } => *len == 0,
            // Without the feature every completed write is stable (5.2.6.2).
            Op::Flush => !self.facts.flushes,
        };
        nothing.then_some(Ok(()))
    }

    /// Can another request be staged at once?
    #[inline]
    pub fn has_room(&self) -> bool {
        self.backlog.is_empty() && usize::from(self.ring.room()) >= self.descriptors(1)
    }

    /// Is nothing in flight, and nothing waiting to be?
    pub fn is_idle(&self) -> bool {
        self.given_up
            || (self.ring.room() == self.rings.size()
                && self.backlog.is_empty()
                && self.failed.is_empty())
    }

    /// Have requests ended that the device was never shown? [`Core::reap`] tells of them.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// How many descriptors a chain with `buffers` of data takes.
    #[inline]
    fn descriptors(&self, buffers: usize) -> usize {
        if self.rings.indirect() {
            1
        } else {
            FRAME + buffers
        }
    }

    /// Takes on a request: it is staged now, or once there is room. One whose end is known before the
    /// device is asked comes back with that.
    #[inline]
    pub fn accept(&mut self, ask: Ask, owner: T) -> Result<(), (T, Result<(), Failure>)> {
        let owner = match &ask {
            Ask::Op(op) => match self.accept_plain(*op, owner) {
                Ok(()) => return Ok(()),
                Err(owner) => owner,
            },
            Ask::Serial(_) => owner,
        };
        self.accept_any(ask, owner)
    }

    #[cold]
    fn accept_any(&mut self, ask: Ask, owner: T) -> Result<(), (T, Result<(), Failure>)> {
        if let Some(result) = self.foresee(&ask) {
            return Err((owner, result));
        }
        self.plan(ask, owner);
        self.refill();
        Ok(())
    }

    /// Takes on the most common of requests on the shortest way: a read or write of one buffer that the
    /// device can use as it is, with room for it. What is anything else comes back.
    #[inline]
    fn accept_plain(&mut self, op: Op, owner: T) -> Result<(), T> {
        let (kind, way, at, spans) = match op {
            Op::Read { at, into } => (Kind::In, Way::In, at, into),
            Op::Write {
                at,
                from,
                durability: Durability::Volatile,
            } if self.facts.geometry.access == Access::ReadWrite => (Kind::Out, Way::Out, at, from),
            _ => return Err(owner),
        };
        let ([span], Some(head)) = (&*spans, self.ring.next_head()) else {
            return Err(owner);
        };
        let (geometry, len) = (&self.facts.geometry, span.len() as u64);
        let plain = len <= u64::from(self.facts.limits.buffer)
            && len > 0
            && geometry.holds(at, len)
            && (at | len) & u64::from(geometry.block - 1) == 0
            && self.facts.generation == self.device.generation()
            && self.view.holds(self.device.known(), *span)
            && self.has_room()
            && !self.device.is_lost();
        if !plain {
            return Err(owner);
        }
        let sector = at / SECTOR;
        let header = RequestHeader { kind, sector };
        self.stage_plain(head, header, buffer(*span), way);
        // A device that is awake begins while the next request is put together.
        self.ring.show();
        self.asks[usize::from(head)] = Ask::Op(op);
        self.flights[usize::from(head)] = Some(Flight {
            whose: Whose::Sole(owner),
            cut: None,
        });
        Ok(())
    }

    #[inline]
    fn stage_plain(
        &mut self,
        head: u16,
        header: RequestHeader,
        data: pollux_ring::Buffer,
        way: Way,
    ) {
        let token = u64::from(head);
        let staged = if self.rings.indirect() {
            let table = self.rings.open_plain(head, header, data, way);
            let room = match way {
                Way::In => u64::from(data.len) + 1,
                Way::Out => 1,
            };
            self.ring.stage_table(table, room, token)
        } else {
            let frame = self.rings.open(head, header);
            match way {
                Way::In => self
                    .ring
                    .stage(&[frame.header], &[data, frame.status], token),
                Way::Out => self
                    .ring
                    .stage(&[frame.header, data], &[frame.status], token),
            }
        };
        debug_assert_eq!(staged, Ok(()), "there was room");
    }

    /// Cuts a request into chains, and stages those for which there is room.
    #[cold]
    fn plan(&mut self, ask: Ask, owner: T) {
        let parts = parts(&ask, &self.facts.limits, self.view.of(self.device.known()));
        let stable = matches!(
            ask,
            Ask::Op(
                Op::Write {
                    durability: Durability::Stable,
                    ..
                } | Op::WriteZeroes {
                    durability: Durability::Stable,
                    ..
                }
            )
        );
        let flush = stable && self.facts.flushes;
        if let ([part], false) = (&parts[..], flush) {
            self.backlog.push_back(Job {
                ask,
                part: *part,
                whose: Whose::Sole(owner),
                bounce: None,
            });
        } else {
            let key = self.wholes.insert(Whole {
                owner,
                parts: parts.len(),
                failure: None,
                flush,
            });
            let jobs = parts.into_iter().map(|part| Job {
                ask,
                part,
                whose: Whose::Part(key),
                bounce: None,
            });
            self.backlog.extend(jobs);
        }
    }

    /// Stages what waits, in order, for as long as there is room.
    fn refill(&mut self) {
        while let Some(job) = self.backlog.pop_front() {
            match self.try_stage(job) {
                Staging::Staged => {}
                Staging::NoRoom(job) => {
                    self.backlog.push_front(job);
                    break;
                }
                Staging::Failed(whose, failure) => self.failed.push((whose, failure)),
            }
        }
    }

    fn try_stage(&mut self, mut job: Job<T>) -> Staging<T> {
        let limits = self.facts.limits;
        let buffers = count(&job.ask, job.part, &limits);
        let Some(head) = self.ring.next_head() else {
            return Staging::NoRoom(job);
        };
        if usize::from(self.ring.room()) < self.descriptors(buffers) {
            return Staging::NoRoom(job);
        }
        let bounce = match job.bounce.take() {
            Some(bounce) => Ok(Some(bounce)),
            None => Bounce::new(self.device.pool(), &job.ask, job.part),
        };
        let bounce = match bounce {
            Ok(bounce) => bounce,
            // Those that are in flight give theirs back.
            Err(_) if self.ring.room() < self.rings.size() => return Staging::NoRoom(job),
            Err(_) => return Staging::Failed(job.whose, Failure::Io(Errno::NOMEM)),
        };
        let (header, range) = wire(&job.ask, job.part);
        let frame = self.rings.open(head, header);
        self.readable.clear();
        self.writable.clear();
        self.readable.push(frame.header);
        if let Some(range) = range {
            self.rings.set_range(head, range);
            self.readable.push(frame.range);
        }
        if let Some(spans) = data_of(&job.ask) {
            let side = match header.kind {
                Kind::Out => &mut self.readable,
                _ => &mut self.writable,
            };
            match &bounce {
                Some(bounce) => push(side, bounce.span(), limits.buffer),
                None => within(&spans, job.part.skip, job.part.len)
                    .for_each(|span| push(side, span, limits.buffer)),
            }
        }
        self.writable.push(frame.status);
        let staged = self
            .ring
            .stage(&self.readable, &self.writable, u64::from(head));
        staged.expect("pieces are cut so that they fit, and there was room");
        let Job {
            ask, part, whose, ..
        } = job;
        let is_all = matches!(whose, Whose::Sole(_)) && bounce.is_none();
        let cut = (!is_all).then(|| Box::new(Cut { part, bounce }));
        self.asks[usize::from(head)] = ask;
        self.flights[usize::from(head)] = Some(Flight { whose, cut });
        Staging::Staged
    }

    /// Shows the device what is staged; tells whether it must be kicked.
    #[inline]
    pub fn publish(&mut self) -> Notify {
        self.ring.publish()
    }

    /// Tells `done` of every request that has ended; returns how many chains have come back. May stage
    /// what follows: publish after this.
    ///
    /// # Errors
    ///
    /// When the device broke the ring. Everything that is in flight is to be given up.
    #[inline]
    pub fn reap(
        &mut self,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) -> Result<u16, PeerFault> {
        let seen = self.ring.look()?;
        for _ in 0..seen {
            let back = self.ring.take()?;
            let back = back.expect("the look has seen as many");
            let head = u16::try_from(back.token).expect("tokens are heads");
            let flight = self.flights[usize::from(head)].take();
            let flight = flight.expect("the ring's end vouches that it is in flight");
            let result = result(self.rings.status(head));
            match flight {
                Flight {
                    whose: Whose::Sole(owner),
                    cut: None,
                } => done(owner, result),
                other => self.end(other, result, done),
            }
        }
        if seen > 0 && !self.backlog.is_empty() {
            self.refill();
        }
        while let Some((whose, failure)) = self.failed.pop() {
            self.end_part(whose, Err(failure), done);
        }
        Ok(seen)
    }

    #[cold]
    fn end(
        &mut self,
        Flight { whose, cut }: Flight<T>,
        result: Result<(), Failure>,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) {
        if let Some(bounce) = cut.and_then(|cut| cut.bounce) {
            bounce.end(result);
        }
        self.end_part(whose, result, done);
    }

    fn end_part(
        &mut self,
        whose: Whose<T>,
        result: Result<(), Failure>,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) {
        let key = match whose {
            Whose::Sole(owner) => return done(owner, result),
            Whose::Part(key) => key,
        };
        let request = &mut self.wholes[key];
        request.parts -= 1;
        request.failure = request.failure.or(result.err());
        if request.parts > 0 {
            return;
        }
        if request.flush && request.failure.is_none() {
            (request.flush, request.parts) = (false, 1);
            self.backlog.push_back(Job {
                ask: Ask::Op(Op::Flush),
                part: Part::default(),
                whose: Whose::Part(key),
                bounce: None,
            });
            self.refill();
            return;
        }
        let request = self.wholes.remove(key);
        done(request.owner, request.failure.map_or(Ok(()), Err));
    }

    /// Gives up everything that is in flight: the device is gone, or cannot be trusted. Memory that it
    /// may still write to is never used again.
    ///
    /// Returns how many requests that were.
    pub fn give_up(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) -> u16 {
        self.given_up = true;
        let mut count = 0u16;
        let mut done = |owner| {
            count = count.saturating_add(1);
            done(owner, Err(Failure::Lost));
        };
        let flights = self.flights.iter_mut().filter_map(Option::take);
        let mut ended: Vec<_> = flights
            .map(|Flight { whose, cut }| {
                if let Some(bounce) = cut.and_then(|cut| cut.bounce) {
                    bounce.retire();
                }
                whose
            })
            .collect();
        ended.extend(self.backlog.drain(..).map(|job| {
            if let Some(bounce) = job.bounce {
                bounce.retire();
            }
            job.whose
        }));
        ended.extend(self.failed.drain(..).map(|(whose, _)| whose));
        for whose in ended {
            if let Whose::Sole(owner) = whose {
                done(owner);
            }
        }
        for whole in self.wholes.drain() {
            done(whole.owner);
        }
        count
    }

    /// Which server works on the rings: another [`epoch`](Device::epoch) of the device tells that it is gone.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Asks for a call by the next completion, then looks once more. Nothing needs to be done where an
    /// earlier wish still stands, as nothing has come back since.
    ///
    /// # Errors
    ///
    /// As for [`Core::reap`].
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        if self.has_failed() {
            return Ok(Armed::Pending);
        }
        self.ring.arm()
    }

    /// Will the next completion bring a call?
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.ring.is_armed()
    }

    /// Asks for no calls.
    #[inline]
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// A look at the used ring for those who do not own this.
    pub fn glance(&self) -> Glance<UsedElem> {
        self.ring.glance()
    }

    /// The used element to be taken next.
    #[inline]
    pub fn next(&self) -> RingIndex {
        self.ring.next()
    }

    /// The queue is closed. Nobody waits for its requests any more, and what was lent with them is let go.
    /// Where the device has taken chains that it has not handed back, it may use their memory for ever:
    /// all of them are given up.
    pub fn close(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) {
        let stopped = self.rings.stopped_at();
        if stopped.is_some() && self.ring.look().is_ok() {
            while let Ok(Some(_)) = self.ring.take() {}
        }
        if stopped == Some(self.ring.next()) {
            self.flights.fill_with(|| None);
            self.backlog.clear();
            self.failed.clear();
            self.wholes.clear();
        }
        self.give_up(done);
    }

    #[cfg(test)]
    pub fn rings(&self) -> &Rings {
        &self.rings
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        self.close(&mut |_, _| ());
    }
}

/// How a request with that status ended. A device that has written none, or nonsense, has failed it.
#[inline]
fn result(status: u8) -> Result<(), Failure> {
    if status == Status::Ok.wire() {
        Ok(())
    } else {
        Err(failure(status))
    }
}

#[cold]
fn failure(status: u8) -> Failure {
    match Status::parse(status) {
        Some(Status::Unsupp) => Failure::Unsupported,
        _ => Failure::Io(Errno::IO),
    }
}

#[inline]
fn buffer(span: Span) -> pollux_ring::Buffer {
    pollux_ring::Buffer {
        address: address(span),
        len: u32::try_from(span.len())
            .expect("a buffer is no longer than the limit, which is a u32"),
    }
}

/// Adds `span` in buffers of at most `most` bytes.
fn push(side: &mut Vec<pollux_ring::Buffer>, span: Span, most: u32) {
    let mut rest = span;
    while rest.len() > most as usize {
        let (here, after) = rest.split_at(most as usize);
        side.push(buffer(here));
        rest = after;
    }
    side.push(buffer(rest));
}
