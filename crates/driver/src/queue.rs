//! A queue shared by any number of threads and tasks.

use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use pollux_blk::SERIAL_BYTES;
use pollux_disk::{Durability, Op, Unmap, WaitPoint};
use pollux_memory::Spans;

use crate::ask::Ask;
use crate::core::Core;
use crate::counters::Counters;
use crate::data::{Data, Way};
use crate::lock::LockTimes;
use crate::options::Completion;
use crate::owner::SharedEnds;
use crate::pending::Pending;
use crate::place::Place;
use crate::polls::Polls;
use crate::readiness::Readiness;
use crate::seat::{CallSeat, Edge};
use crate::shared::Switchboard;
use crate::shared_channel::SharedChannel;
use crate::sight::Sight;
use crate::sync::{Mutex, lock};

/// What all handles of a shared queue have in common.
#[derive(Debug)]
pub struct Shared {
    /// The queue behind its lock.
    pub board: Switchboard<SharedEnds, CallSeat, Edge>,
    /// For how long blocking waits poll before they sleep, as it was learnt, and by which thread.
    polls: Mutex<(Polls, Option<ThreadId>)>,
    /// From when their time counts.
    pub epoch: Instant,
}

impl Shared {
    /// What the queue has counted since the device is there.
    pub fn counters(&self) -> Counters {
        self.board.hear();
        self.board.outside().place().counts().snapshot()
    }

    /// What was learnt of polling so far.
    pub fn polls(&self) -> Polls {
        let (mut polls, by) = lock(&self.polls).clone();
        if by != Some(thread::current().id()) {
            polls.moved();
        }
        polls
    }

    /// What a wait has learnt.
    pub fn learnt(&self, polls: Polls) {
        *lock(&self.polls) = (polls, Some(thread::current().id()));
    }
}

/// A queue that any number of threads and tasks share, in all three ways of waiting at once.
///
/// Every request is a [`Pending`], which can be waited for or awaited. Who looks ([`Queue::poll`]) reaps
/// for everybody. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue(pub(crate) Arc<Shared>);

impl Queue {
    pub(crate) fn over(place: Place) -> io::Result<Self> {
        let device = Arc::clone(place.device());
        let index = place.index();
        let core = Core::new(Arc::clone(&device), index);
        let sight = Arc::new(Sight::new(&core));
        let edge = Edge::new(place, Arc::clone(&sight))?;
        let seat = CallSeat::new(&edge)?;
        let options = device.options();
        let ends = SharedEnds::new(core, sight);
        let experiment = &options.experiment;
        let mut board = Switchboard::new(ends, seat, edge, options.mixed, experiment.kick_lock);
        if experiment.record_lock {
            board.record();
        }
        let polls = Mutex::new((Polls::new(), None));
        let epoch = Instant::now();
        Ok(Self(Arc::new(Shared {
            board,
            polls,
            epoch,
        })))
    }

    /// A channel into the queue, for an owner that sleeps at `wait`. Its completions arrive in an inbox of
    /// its own, whoever reaps them.
    ///
    /// # Errors
    ///
    /// None as yet.
    pub fn channel(&self, wait: &WaitPoint) -> io::Result<SharedChannel> {
        Ok(SharedChannel::new(Arc::clone(&self.0), wait))
    }

    /// Looks, and completes for everybody what the device has finished; returns how many chains that were.
    /// It never sleeps, and takes no lock when there is nothing.
    #[inline]
    #[expect(
        clippy::must_use_candidate,
        reason = "it completes requests; how many need not matter"
    )]
    pub fn poll(&self) -> usize {
        usize::from(self.0.board.poll())
    }

    /// Reads from the disk at `at` into all of `into`.
    pub fn read<D: Data>(&self, at: u64, into: D, completion: Completion) -> Pending<D> {
        let ask = move |into| Ask::Op(Op::Read { at, into });
        Pending::new(&self.0, into, Way::In, completion, ask)
    }

    /// Writes all of `from` to the disk at `at`.
    pub fn write<D: Data>(
        &self,
        at: u64,
        from: D,
        durability: Durability,
        completion: Completion,
    ) -> Pending<D> {
        let ask = move |from| {
            Ask::Op(Op::Write {
                at,
                from,
                durability,
            })
        };
        Pending::new(&self.0, from, Way::Out, completion, ask)
    }

    /// Puts every write that has completed on stable storage.
    pub fn flush(&self, completion: Completion) -> Pending<()> {
        self.bare(Op::Flush, completion)
    }

    /// Gives up the contents of `len` bytes at `at`.
    pub fn discard(&self, at: u64, len: u64, completion: Completion) -> Pending<()> {
        self.bare(Op::Discard { at, len }, completion)
    }

    /// Makes `len` bytes at `at` zeroes; `unmap` allows their blocks to be given back.
    pub fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        unmap: Unmap,
        durability: Durability,
        completion: Completion,
    ) -> Pending<()> {
        let op = Op::WriteZeroes {
            at,
            len,
            unmap,
            durability,
        };
        self.bare(op, completion)
    }

    /// Asks for the serial number: 20 bytes, padded with zeroes.
    pub fn serial(&self, completion: Completion) -> Pending<Vec<u8>> {
        let into = vec![0; SERIAL_BYTES];
        Pending::new(&self.0, into, Way::In, completion, Ask::Serial)
    }

    fn bare(&self, op: Op, completion: Completion) -> Pending<()> {
        Pending::new(&self.0, (), Way::Out, completion, move |_: Spans| {
            Ask::Op(op)
        })
    }

    /// A descriptor that is readable when there is something to do for tasks, for an event loop to drive.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn readiness(&self) -> io::Result<Readiness> {
        Readiness::new(Arc::clone(&self.0))
    }

    /// Completes what the device has finished, wakes whoever waits for it, and asks to be called again if
    /// that is needed: after a call, or in an event loop of one's own.
    pub fn drive(&self) {
        self.0.board.woken();
    }

    /// What the queue has counted since the device is there.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters()
    }

    /// How long the queue's lock was held and waited for, where [`Experiment`](crate::Experiment) asks for it.
    #[doc(hidden)]
    #[must_use]
    pub fn lock_times(&self) -> Option<LockTimes> {
        self.0.board.times()
    }
}
