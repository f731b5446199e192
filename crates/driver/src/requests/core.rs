//! The requests of one queue, shared or not: everything but locks, sleeping and telling owners.
//!
//! ```text
//! accept ──fits as it is────────────────────────────▶ staged ──▶ reap ──▶ the owner
//!    └──too large, not shared, to be flushed──▶ backlog ──┘        │
//!                                                  ▲               │ a part: once its siblings have
//!                                                  └── flush ◀─────┘ ended
//! ```
//! What is lent with a request is used until the request has ended. The driver reads nothing back that
//! the device can write, but the used ring and the status byte.
//!
//! Here are the short ways, which nearly all requests take; [`staging`] has the long way in, [`ending`] what
//! ends requests otherwise, [`replay`] what a new server is handed.

mod ending;
mod replay;
mod staging;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use pollux_blk::{Kind, RequestHeader, SECTOR};
use pollux_disk::{Access, Durability, Failure, Op};
use pollux_memory::Span;
use pollux_ring::{Armed, DriverEnd, IndexView, Notify, PeerFault, RingIndex, UsedChain, UsedElem};
use slab::Slab;

use crate::device::Device;
use crate::device::facts::Facts;
use crate::device::limits::FRAME;
use crate::device::rings::Rings;
use crate::error::Lost;
use crate::memory::data::Direction;
use crate::memory::known_regions::RegionView;
use crate::memory::memfd::address;
use crate::requests::command::Command;
use crate::requests::flight::{Flight, Job, Whole, Whose, result};

/// The requests of one queue; `T` names a request to its owner.
#[derive(Debug)]
pub struct Core<T> {
    ring: DriverEnd,
    rings: Arc<Rings>,
    index: u16,
    /// Which server knows the rings.
    epoch: u64,
    /// What is in flight, by head: beside the flights, as it is read only to hand it to another server.
    commands: Box<[Command]>,
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
    view: RegionView,
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
            commands: vec![Command::Op(Op::Flush); usize::from(rings.size())].into(),
            flights: (0..rings.size()).map(|_| None).collect(),
            rings,
            backlog: VecDeque::new(),
            wholes: Slab::new(),
            failed: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
            facts: device.facts(),
            view: RegionView::default(),
            given_up: false,
            device,
        }
    }

    /// Can another request be staged at once?
    #[inline]
    pub fn has_room(&self) -> bool {
        self.backlog.is_empty() && self.head_for(1).is_some()
    }

    /// The head of the next chain, if there is room for one with `buffers` of data.
    #[inline]
    fn head_for(&self, buffers: usize) -> Option<u16> {
        self.ring.next_head(if self.rings.indirect() {
            1
        } else {
            FRAME + buffers
        })
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

    /// Takes on a request: it is staged now, or once there is room. One whose end is known before the
    /// device is asked comes back with that.
    #[inline]
    pub fn accept(&mut self, command: Command, owner: T) -> Result<(), (T, Result<(), Failure>)> {
        let owner = match &command {
            Command::Op(op) => match self.accept_plain(*op, owner) {
                Ok(()) => return Ok(()),
                Err(owner) => owner,
            },
            Command::Serial(_) => owner,
        };
        self.accept_any(command, owner)
    }

    /// Takes on the most common of requests on the shortest way: a read or write of one buffer that the
    /// device can use as it is, with room for it. What is anything else comes back.
    #[inline]
    fn accept_plain(&mut self, op: Op, owner: T) -> Result<(), T> {
        let (kind, direction, at, spans) = match op {
            Op::Read { at, into } => (Kind::In, Direction::In, at, into),
            Op::Write {
                at,
                from,
                durability: Durability::Volatile,
            } if self.facts.geometry.access == Access::ReadWrite => {
                (Kind::Out, Direction::Out, at, from)
            }
            _ => return Err(owner),
        };
        let (&[span], Some(head), true) = (&*spans, self.head_for(1), self.backlog.is_empty())
        else {
            return Err(owner);
        };
        let (geometry, len) = (&self.facts.geometry, span.len() as u64);
        let plain = len <= u64::from(self.facts.limits.buffer)
            && len > 0
            && geometry.holds(at, len)
            && (at | len) & u64::from(geometry.block - 1) == 0
            && self.facts.generation == self.device.generation()
            && self.view.holds(self.device.known(), span)
            && !self.device.is_lost();
        if !plain {
            return Err(owner);
        }
        let sector = at / SECTOR;
        let header = RequestHeader { kind, sector };
        self.stage_plain(head, header, buffer(span), direction);
        // A device that is awake begins while the next request is put together.
        self.ring.show();
        self.commands[usize::from(head)] = Command::Op(op);
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
        direction: Direction,
    ) {
        let token = u64::from(head);
        let staged = if self.rings.indirect() {
            let table = self.rings.open_plain(head, header, data, direction);
            let room = match direction {
                Direction::In => u64::from(data.len) + 1,
                Direction::Out => 1,
            };
            self.ring.stage_table(table, room, token)
        } else {
            let frame = self.rings.open(head, header);
            match direction {
                Direction::In => self
                    .ring
                    .stage(&[frame.header], &[data, frame.status], token),
                Direction::Out => self
                    .ring
                    .stage(&[frame.header, data], &[frame.status], token),
            }
        };
        debug_assert_eq!(staged, Ok(()), "there was room");
    }

    /// Shows the device what is staged; tells whether it must be kicked.
    #[inline]
    pub fn publish(&mut self) -> Notify {
        self.ring.publish()
    }

    /// Tells `done` of every request that has ended; returns how many chains have come back. May stage
    /// what follows, or all that was in flight at a server that is gone: publish after this.
    ///
    /// Where the device is gone, or has broken the ring and so goes now, all that is in flight has ended.
    #[inline]
    pub fn reap(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) -> u16 {
        // Before the poll: what a server that is gone has ended, it had ended before that was said.
        let is_there = self.device.epoch() == self.epoch;
        if !is_there && self.device.is_lost() {
            return self.give_up(done);
        }
        // A page that a write needed was lost before that was sent; of one that is lost later, `Buffer::read` tells.
        if self.device.has_lost_memory() {
            return self.give_up(done);
        }
        match self.reap_ring(done) {
            Ok(chains) => {
                if !is_there {
                    self.follow();
                    self.tell_failed(done);
                }
                chains
            }
            Err(fault) => {
                self.broken(fault);
                self.give_up(done)
            }
        }
    }

    /// The ring is broken: the device goes.
    #[cold]
    pub fn broken(&self, fault: PeerFault) {
        let queue = self.index;
        self.device.lose(Lost::Ring { queue, fault });
    }

    /// What the used ring of this server holds.
    #[expect(
        clippy::inline_always,
        reason = "of the instructions of a request alone, 5 % else pass its state"
    )]
    #[inline(always)]
    fn reap_ring(
        &mut self,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) -> Result<u16, PeerFault> {
        let seen = self.ring.look()?;
        while let Some(UsedChain { token, .. }) = self.ring.take()? {
            let head = u16::try_from(token).expect("tokens are heads");
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
        self.tell_failed(done);
        Ok(seen)
    }

    /// Tells of what could not be staged.
    #[inline]
    fn tell_failed(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) {
        while let Some((whose, failure)) = self.failed.pop() {
            self.end_part(whose, Err(failure), done);
        }
    }

    /// Which server works on the rings: another [`epoch`](Device::epoch) of the device tells that it is gone.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Asks for a call by the next completion, then polls once more. Nothing needs to be done where an
    /// earlier wish still stands, as nothing has come back since.
    ///
    /// # Errors
    ///
    /// When the device broke the ring.
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        if self.has_failed() {
            return Ok(Armed::Pending);
        }
        self.ring.arm()
    }

    /// Will the next completion cause a call?
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.ring.is_armed()
    }

    /// Asks for no calls.
    #[inline]
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }

    /// A view of the used ring's index for threads that do not own this.
    pub fn index_view(&self) -> IndexView<UsedElem> {
        self.ring.index_view()
    }

    /// Is there something for [`Core::reap`]: requests that have ended, or another server, or none any more?
    pub fn is_pending(&self) -> bool {
        self.has_failed()
            || self.index_view().sees_more_than(self.next())
            || self.device.epoch() != self.epoch
    }

    /// The used element to be taken next.
    #[inline]
    pub fn next(&self) -> RingIndex {
        self.ring.next()
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

#[inline]
fn buffer(span: Span) -> pollux_ring::Buffer {
    pollux_ring::Buffer {
        address: address(span),
        len: u32::try_from(span.len())
            .expect("a buffer is no longer than the limit, which is a u32"),
    }
}
