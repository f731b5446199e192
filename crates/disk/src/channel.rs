//! Requests, completions, and the channel between them.

use std::io;

use pollux_memory::Spans;
use rustix::io::Errno;

/// Names a request to its owner. A channel hands it back and makes nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// When is a write complete?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it can be read back; a later flush makes it durable.
    Volatile,
    /// Once it is on stable storage: write-through.
    Stable,
}

/// May zeroing a range give its blocks back?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmap {
    /// The blocks stay allocated.
    Forbidden,
    /// The blocks may be given back to the storage.
    Allowed,
}

/// What a request asks for. Offsets and lengths are in bytes and inside the disk.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Fill `into` from the disk at `at`.
    Read {
        /// Where on the disk.
        at: u64,
        /// Where in memory.
        into: Spans,
    },
    /// Store `from` on the disk at `at`.
    Write {
        /// Where on the disk.
        at: u64,
        /// Where in memory.
        from: Spans,
        /// When the write is complete.
        durability: Durability,
    },
    /// Put every write that completed before this was queued on stable storage.
    Flush,
    /// The contents of the range are not needed any more; they read as anything from now on.
    Discard {
        /// Where on the disk.
        at: u64,
        /// How much.
        len: u64,
    },
    /// The range reads as zeroes from now on.
    WriteZeroes {
        /// Where on the disk.
        at: u64,
        /// How much.
        len: u64,
        /// May the blocks be given back?
        unmap: Unmap,
        /// When the zeroes are complete.
        durability: Durability,
    },
}

/// One request. The memory it names is lent to the channel until the request has ended.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the [`Completion`].
    pub ticket: Ticket,
    /// What to do.
    pub op: Op,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The machine said no. The disk has logged what it was doing, to what.
    #[error("the storage failed")]
    Io(#[source] Errno),
    /// This disk has no such operation.
    #[error("the disk has no such operation")]
    Unsupported,
    /// The request reaches beyond the end of the disk.
    #[error("the request reaches beyond the end of the disk")]
    OutOfRange,
    /// The disk may not be written.
    #[error("the disk is read-only")]
    ReadOnly,
    /// The device behind the disk is gone. What became of the request is not known.
    #[error("the device is gone")]
    Lost,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure {
            Failure::Io(errno) => return errno.into(),
            Failure::Unsupported => io::ErrorKind::Unsupported,
            Failure::OutOfRange => io::ErrorKind::InvalidInput,
            Failure::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            Failure::Lost => io::ErrorKind::NotConnected,
        };
        Self::new(kind, failure)
    }
}

/// A request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// How.
    pub result: Result<(), Failure>,
}

/// What became of a request that was handed over.
#[must_use = "a request that is done at once completes nowhere else"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It will come out of [`Channel::reap`].
    Pending,
    /// It has ended already and will not come out of [`Channel::reap`].
    Done(Result<(), Failure>),
}

/// May the owner of a channel sleep?
#[must_use = "sleeping on `Pending` strands work"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Nothing is there. The next completion wakes the wait point.
    Idle,
    /// There is something to reap.
    Pending,
    /// Completions of this channel wake no one: its owner has to keep polling.
    CannotSleep,
}

/// One owner's way into a disk.
///
/// Owned by one thread at a time, not by one for ever. It is dropped only when nothing is in flight.
///
/// # Safety
///
/// The memory that a request names, and the list of its spans, is used no more once the request has ended:
/// once [`Channel::queue`] has said [`Queued::Done`], or [`Channel::reap`] has handed its [`Completion`] to `done`. Not
/// by the channel, nor by a thread, the kernel or another channel that it lent them to. The lender relies on
/// that to free the memory. (A request that has not ended when its channel is dropped never ends.)
///
/// So a channel is a promise:
///
/// ```
/// # use pollux_disk::{Armed, Channel, Completion, Queued, Request};
/// struct Sink;
///
/// // SAFETY: it touches no memory.
/// unsafe impl Channel for Sink {
///     fn queue(&mut self, _request: Request) -> Queued { Queued::Done(Ok(())) }
///     fn submit(&mut self) {}
///     fn reap(&mut self, _done: &mut dyn FnMut(Completion)) {}
///     fn arm(&mut self) -> Armed { Armed::Idle }
/// }
/// ```
///
/// Safe code cannot make it:
///
/// ```compile_fail,E0200
/// # use pollux_disk::{Armed, Channel, Completion, Queued, Request};
/// struct Sink;
///
/// impl Channel for Sink {
///     fn queue(&mut self, _request: Request) -> Queued { Queued::Done(Ok(())) }
///     fn submit(&mut self) {}
///     fn reap(&mut self, _done: &mut dyn FnMut(Completion)) {}
///     fn arm(&mut self) -> Armed { Armed::Idle }
/// }
/// ```
#[expect(unsafe_code, reason = "safe code cannot promise that")]
pub unsafe trait Channel: Send {
    /// Hands over one request. Nothing needs to happen before [`Channel::submit`].
    fn queue(&mut self, request: Request) -> Queued;

    /// Starts all that was queued, at best with one system call. Follows every round of
    /// [`Channel::queue`], and every [`Channel::reap`]: reaping may queue follow-ups of its own.
    ///
    /// A request that cannot be started ends with its failure in [`Channel::reap`].
    fn submit(&mut self);

    /// Hands every request that has ended to `done`; never waits.
    fn reap(&mut self, done: &mut dyn FnMut(Completion));

    /// Asks for the wait point to be woken by the next completion, then polls once more. The wait
    /// point itself is armed before.
    fn arm(&mut self) -> Armed;

    /// Changes when the server that completes requests goes away, and when another takes its place. It may have lost
    /// what had completed and was not flushed. So of a volatile write in parts all are done again if this changes before
    /// the last of them has ended. `None` where there is no server that could go.
    fn replacements(&self) -> Option<u64> {
        None
    }
}
