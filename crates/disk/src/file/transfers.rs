//! The transfers of one channel through its `io_uring`, each until all of it has been moved.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use pollux_memory::io::Flow;
use pollux_memory::uring::{Ended, Ring, Transfer};
use rustix::io::Errno;
use slab::Slab;

use super::counts::Counts;
use super::registered::{Registered, View};
use super::sync::Settle;
use crate::Ticket;

/// Past the page cache, so many are started without waiting for the rest of a turn: the disk works while that comes in.
/// (What one system call starts, the kernel hands it at once.) A copy from the page cache is cheaper than a start.
const TOGETHER: u32 = 4;

/// A transfer and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub ticket: Ticket,
    pub transfer: Transfer,
    pub settle: Settle,
}

impl Pending {
    /// All of its bytes, those that were moved before included.
    pub fn bytes(&self) -> u64 {
        self.transfer.spans.bytes()
    }

    /// Where on the disk its first byte belongs.
    pub fn start(&self) -> u64 {
        self.transfer.at - self.transfer.skip
    }
}

/// The ring of one channel.
pub struct Transfers {
    /// Before the ring: it is dropped first, and lets go of the ring's memory.
    view: Option<View>,
    ring: Ring,
    pending: Slab<Pending>,
    /// Those for which the ring had no room yet.
    backlog: VecDeque<usize>,
    direct: bool,
    /// How many were handed over since the last start.
    unstarted: u32,
    /// How many system calls have been told.
    told: u64,
    /// Empty between two reaps; kept for its memory.
    ended: Vec<Ended>,
}

impl Transfers {
    /// With `registered`, memory that it holds is used by its index. Is the I/O `direct`, past the page cache?
    pub fn new(
        file: impl AsFd,
        registered: Option<&Arc<Registered>>,
        direct: bool,
    ) -> io::Result<Self> {
        let ring = Ring::new(file)?;
        let view = registered.map(|all| View::new(all, &ring)).transpose()?;
        Ok(Self {
            view,
            ring,
            pending: Slab::new(),
            backlog: VecDeque::new(),
            direct,
            unstarted: 0,
            told: 0,
            ended: Vec::new(),
        })
    }

    /// Hands over a transfer that is not empty. At the latest the next [`Transfers::submit`] starts it, as far as the
    /// ring has room.
    #[inline]
    pub fn queue(&mut self, mut pending: Pending, counts: &mut Counts) {
        counts.queued += 1;
        if let (Some(view), [span]) = (&mut self.view, &*pending.transfer.spans) {
            pending.transfer.buffer = view.find(*span);
            counts.registered += u64::from(pending.transfer.buffer.is_some());
        }
        let at = self.pending.insert(pending);
        self.start(at);
        self.unstarted += 1;
        if self.direct && self.unstarted == TOGETHER {
            // What the kernel does not take now it is handed again.
            let _ = self.submit();
        }
    }

    fn start(&mut self, at: usize) {
        if self.ring.has_room() {
            self.ring.queue(at as u64, &self.pending[at].transfer);
        } else {
            self.backlog.push_back(at);
        }
    }

    /// Starts what was handed over and has not started, with one system call at most.
    pub fn submit(&mut self) -> Result<(), Errno> {
        self.unstarted = 0;
        self.ring.submit()
    }

    /// How many system calls there were since this was last asked.
    pub fn entered(&mut self) -> u64 {
        let all = self.ring.entered();
        all - std::mem::replace(&mut self.told, all)
    }

    /// Gives every transfer that has ended to `done`. What the kernel has moved in part only goes on, with
    /// the next [`Transfers::submit`].
    pub fn reap(&mut self, mut done: impl FnMut(Pending, Result<(), Errno>)) {
        let mut ended = std::mem::take(&mut self.ended);
        self.ring.collect(&mut ended);
        for Ended { token, result } in ended.drain(..) {
            let at = usize::try_from(token).expect("tokens are indices into a slab");
            match self.judge(at, result) {
                Some(result) => done(self.pending.remove(at), result),
                None => self.start(at),
            }
        }
        self.ended = ended;
        while self.ring.has_room() {
            let Some(at) = self.backlog.pop_front() else {
                break;
            };
            self.start(at);
        }
    }

    /// How the transfer has ended; `None`: it goes on.
    fn judge(&mut self, at: usize, result: Result<usize, Errno>) -> Option<Result<(), Errno>> {
        let pending = &mut self.pending[at];
        match result {
            // The disk should hold more: the file has been cut shorter meanwhile.
            Ok(0) => Some(Err(Errno::NODATA)),
            Ok(moved) => {
                let moved = moved as u64;
                pending.transfer.skip += moved;
                pending.transfer.at += moved;
                (pending.transfer.skip >= pending.bytes()).then_some(Ok(()))
            }
            // None of it was done: a signal came, the kernel was short of something, or the thread that
            // started it has ended.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Is there anything to do before a sleep?
    pub fn is_busy(&mut self) -> bool {
        self.ring.has_ended() || self.ring.has_staged()
    }
}

/// Readable while something has ended.
impl AsFd for Transfers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// What the log calls a transfer.
pub fn verb(flow: Flow) -> &'static str {
    match flow {
        Flow::FromFile => "read",
        Flow::ToFile => "write",
    }
}
