//! A queue shared by any number of threads and tasks.

use std::io;
use std::sync::Arc;

use pollux_blk::SERIAL_BYTES;
use pollux_disk::{Durability, Op, Unmap, WaitPoint};
use pollux_memory::Spans;

use crate::counters::Counters;
use crate::device::active_queue::ActiveQueue;
use crate::memory::data::{Data, Direction};
use crate::options::CompletionMode;
use crate::requests::command::Command;
use crate::shared::channel::SharedChannel;
use crate::shared::lock::LockTimes;
use crate::shared::pending::Pending;
use crate::shared::readiness::Readiness;
use crate::shared::state::Shared;

/// A queue that any number of threads and tasks share, in all three ways of waiting at once.
///
/// Every request is a [`Pending`], which can be waited for or awaited. A poll ([`Queue::poll`]) reaps
/// for everybody. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue(pub(crate) Arc<Shared>);

impl Queue {
    pub(crate) fn over(queue: ActiveQueue) -> io::Result<Self> {
        Ok(Self(Arc::new(Shared::over(queue)?)))
    }

    /// A channel into the queue, for an owner that sleeps at `wait`. Its completions arrive in an inbox of
    /// its own, whichever thread reaps them.
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
    pub fn read<D: Data>(&self, at: u64, into: D, completion: CompletionMode) -> Pending<D> {
        let op = Op::Read {
            at,
            into: Spans::NONE,
        };
        Pending::new(&self.0, into, Direction::In, completion, Command::Op(op))
    }

    /// Writes all of `from` to the disk at `at`.
    pub fn write<D: Data>(
        &self,
        at: u64,
        from: D,
        durability: Durability,
        completion: CompletionMode,
    ) -> Pending<D> {
        let op = Op::Write {
            at,
            from: Spans::NONE,
            durability,
        };
        Pending::new(&self.0, from, Direction::Out, completion, Command::Op(op))
    }

    /// Puts every write that has completed on stable storage.
    pub fn flush(&self, completion: CompletionMode) -> Pending<()> {
        self.without_data(Op::Flush, completion)
    }

    /// Gives up the contents of `len` bytes at `at`.
    pub fn discard(&self, at: u64, len: u64, completion: CompletionMode) -> Pending<()> {
        self.without_data(Op::Discard { at, len }, completion)
    }

    /// Makes `len` bytes at `at` zeroes; `unmap` allows their blocks to be given back.
    pub fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        unmap: Unmap,
        durability: Durability,
        completion: CompletionMode,
    ) -> Pending<()> {
        let op = Op::WriteZeroes {
            at,
            len,
            unmap,
            durability,
        };
        self.without_data(op, completion)
    }

    /// Asks for the serial number: 20 bytes, padded with zeroes.
    pub fn serial(&self, completion: CompletionMode) -> Pending<Vec<u8>> {
        let into = vec![0; SERIAL_BYTES];
        Pending::new(
            &self.0,
            into,
            Direction::In,
            completion,
            Command::Serial(Spans::NONE),
        )
    }

    fn without_data(&self, op: Op, completion: CompletionMode) -> Pending<()> {
        Pending::new(&self.0, (), Direction::Out, completion, Command::Op(op))
    }

    /// A descriptor that is readable when there is something to do for tasks, for an event loop to drive.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn readiness(&self) -> io::Result<Readiness> {
        Readiness::new(Arc::clone(&self.0))
    }

    /// Completes what the device has finished, wakes what waits for it, and asks to be called again if
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
