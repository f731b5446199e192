//! Files read into spans and written from spans through `io_uring`: many transfers, one system call.
//!
//! One of the homes of `unsafe`, like [`io`](crate::io): the kernel is given bare addresses. What makes
//! that sound is that a [`Ring`] never lets go of a transfer that the kernel still works on: it
//! waits for all of them when it is dropped.

mod buffers;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use io_uring::types::Fixed;
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, opcode, squeue};
use rustix::io::Errno;

use crate::io::{Flow, MAX_SPANS};
use crate::{Span, Spans};

pub use buffers::Buffers;

/// What is to be moved. One that is begun anew, because the kernel has moved a part of it only, skips
/// that part.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Which way.
    pub flow: Flow,
    /// The memory, lent until the transfer has ended.
    pub spans: Spans,
    /// How many bytes at the start of `spans` to leave out.
    pub skip: u64,
    /// Where in the file the rest belongs.
    pub at: u64,
    /// The slot of [`Buffers`] in which all of `spans` lies, if it is one span.
    pub buffer: Option<u16>,
}

/// A transfer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it was called.
    pub token: u64,
    /// How many bytes it moved: maybe fewer than asked for, for the reasons [`io`](crate::io) names.
    pub result: Result<usize, Errno>,
}

/// An `io_uring` on one file.
///
/// Its descriptor is readable while something has ended. It may move from thread to thread. (The
/// kernel ends transfers in the name of the thread that started them, when that next enters the
/// kernel, if only by the tick of the clock.)
pub struct Ring {
    /// Shared with its [`Buffers`], which touch neither of its queues.
    uring: Arc<IoUring>,
    /// Transfers that were handed over and whose end was not collected.
    in_flight: usize,
    /// Lists of spans that were made for one transfer. The kernel copies a list when it starts the transfer
    /// (`IORING_FEAT_SUBMIT_STABLE`), so they go after that.
    rests: Vec<Vec<Span>>,
    entered: u64,
}

/// What is handed over at once; more starts a system call early.
const ENTRIES: u32 = 128;

/// What is in flight at most, so that no end is ever without a place to be told.
const MOST: u32 = 1024;

/// How many threads of the kernel wait for requests at most, where it cannot do without: all rings that a thread submits
/// to share them, so those of a disk that is slow would keep those of others waiting.
const WAITING: u32 = 2 * MOST;

impl Ring {
    /// A ring on `file`.
    ///
    /// # Errors
    ///
    /// What the kernel says where it has no `io_uring`, an older one than Linux 5.19's, or forbids
    /// it: `ENOSYS`, `EPERM`, `EINVAL`; `EMFILE` and `ENOMEM` where it runs out of what a ring takes.
    pub fn new(file: impl AsFd) -> io::Result<Self> {
        // Cooperative: an end that comes while its thread runs does not interrupt it; the thread is told by
        // a flag and lets the kernel tell the rest at the next poll (`Ring::collect`).
        let uring = IoUring::builder()
            .setup_cqsize(MOST)
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)?;
        if !uring.params().is_feature_submit_stable() {
            return Err(Errno::OPNOTSUPP.into());
        }
        uring
            .submitter()
            .register_files(&[file.as_fd().as_raw_fd()])?;
        uring
            .submitter()
            .register_iowq_max_workers(&mut [WAITING, 0])?;
        Ok(Self {
            uring: Arc::new(uring),
            in_flight: 0,
            rests: Vec::new(),
            entered: 0,
        })
    }

    /// Does it work? Reads nothing, through all the steps of reading something: a filter of system calls may allow
    /// to make a ring and forbid to use it.
    ///
    /// # Errors
    ///
    /// As [`Ring::new`].
    pub fn probe(file: impl AsFd) -> io::Result<()> {
        let mut ring = Self::new(file)?;
        let nothing = Transfer {
            flow: Flow::FromFile,
            spans: Spans::NONE,
            skip: 0,
            at: 0,
            buffer: None,
        };
        ring.queue(0, &nothing);
        match ring.uring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) => {
                // The kernel has never seen it.
                ring.in_flight = 0;
                Err(error)
            }
        }
    }

    fn submissions(&mut self) -> SubmissionQueue<'_> {
        // SAFETY: `self` is borrowed as long as the queue is, and there is no other.
        unsafe { self.uring.submission_shared() }
    }

    fn completions(&mut self) -> CompletionQueue<'_> {
        // SAFETY: as for submissions.
        unsafe { self.uring.completion_shared() }
    }

    /// Is there room for another transfer?
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight < MOST as usize
    }

    /// How many transfers have not been collected.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Hands over `transfer`, which comes back from [`Ring::collect`] as `token`. Nothing needs to happen
    /// before [`Ring::submit`].
    ///
    /// # Panics
    ///
    /// When there is no room.
    pub fn queue(&mut self, token: u64, transfer: &Transfer) {
        assert!(self.has_room(), "the owner asks for room first");
        // Before the entry is made: a start lets go of `rests`, and the entry's list may be one of them.
        while self.submissions().is_full() {
            // The kernel takes what is there, unless it is short of memory for a moment.
            if self.submit().is_err() {
                thread::yield_now();
            }
        }
        let entry = self.entry(transfer).user_data(token);
        // SAFETY: the entry names the ring's registered file, and memory that is lent until the transfer has ended
        // (`Span::new`), whose end is waited for even when the ring is dropped. The list of spans is lent likewise, or
        // stays in `rests` until the kernel has copied it: nothing is started before the entry is in the queue.
        let pushed = unsafe { self.submissions().push(&entry) };
        pushed.expect("there is room");
        self.in_flight += 1;
    }

    fn entry(&mut self, transfer: &Transfer) -> squeue::Entry {
        let spans = transfer.spans;
        let (first, count) = match (&*spans, transfer.skip) {
            ([], _) => return one(transfer, Span::EMPTY),
            ([span], 0) => return one(transfer, *span),
            (list, 0) => (list.as_ptr(), list.len()),
            (_, skip) => {
                let rest = transfer.spans.skip(skip);
                if let [span] = rest[..] {
                    return one(transfer, span);
                }
                self.rests.push(rest);
                let rest = &self.rests[self.rests.len() - 1];
                (rest.as_ptr(), rest.len())
            }
        };
        let count = u32::try_from(count.min(MAX_SPANS)).expect("MAX_SPANS is a u32");
        // A span is laid out like an iovec (asserted in `io`).
        let list: *const libc::iovec = first.cast();
        match transfer.flow {
            Flow::FromFile => opcode::Readv::new(Fixed(0), list, count)
                .offset(transfer.at)
                .build(),
            Flow::ToFile => opcode::Writev::new(Fixed(0), list, count)
                .offset(transfer.at)
                .build(),
        }
    }

    /// Starts all that was handed over, with one system call; none if there is nothing.
    ///
    /// # Errors
    ///
    /// What `io_uring_enter` says: `EAGAIN` or `EBUSY` where the kernel is out of memory for now. What
    /// it did not take is still there for the next time.
    pub fn submit(&mut self) -> Result<(), Errno> {
        if self.submissions().is_empty() {
            return Ok(());
        }
        self.enter()
    }

    fn enter(&mut self) -> Result<(), Errno> {
        loop {
            self.entered += 1;
            match self.uring.submit() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        if self.submissions().is_empty() {
            self.rests.clear();
        }
        Ok(())
    }

    /// How many system calls it has made so far.
    #[must_use]
    pub fn entered(&self) -> u64 {
        self.entered
    }

    /// Was something handed over that the kernel has not taken yet?
    #[must_use]
    pub fn has_staged(&mut self) -> bool {
        !self.submissions().is_empty()
    }

    /// Has something ended? Its end may have to be fetched by [`Ring::collect`].
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        !self.completions().is_empty() || self.submissions().taskrun()
    }

    /// Adds all that has ended to `ended`; never waits.
    pub fn collect(&mut self, ended: &mut Vec<Ended>) {
        if self.in_flight == 0 {
            return;
        }
        if self.completions().is_empty() {
            if !self.submissions().taskrun() {
                return;
            }
            // Transfers have ended, and the kernel waits for a thread to come by and tell itself. Where it
            // cannot (`EINTR`, `EBUSY`), the next poll finds them.
            let _ = self.enter();
        }
        let before = ended.len();
        ended.extend(self.completions().map(|entry| Ended {
            token: entry.user_data(),
            result: result(entry.result()),
        }));
        self.in_flight -= ended.len() - before;
    }
}

fn one(transfer: &Transfer, span: Span) -> squeue::Entry {
    let (base, at) = (span.as_ptr(), transfer.at);
    // More than 4 GiB are a short transfer.
    let len = u32::try_from(span.len()).unwrap_or(!4095);
    match (transfer.flow, transfer.buffer) {
        (Flow::FromFile, None) => opcode::Read::new(Fixed(0), base, len).offset(at).build(),
        (Flow::ToFile, None) => opcode::Write::new(Fixed(0), base, len).offset(at).build(),
        (Flow::FromFile, Some(buffer)) => opcode::ReadFixed::new(Fixed(0), base, len, buffer)
            .offset(at)
            .build(),
        (Flow::ToFile, Some(buffer)) => opcode::WriteFixed::new(Fixed(0), base, len, buffer)
            .offset(at)
            .build(),
    }
}

fn result(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()))
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns its descriptor and is borrowed as long as that.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

/// Waits for all transfers: their memory is in use until they have ended.
impl Drop for Ring {
    fn drop(&mut self) {
        let mut ended = Vec::new();
        while self.in_flight > 0 {
            if self.uring.submit_and_wait(1).is_err() {
                thread::yield_now();
            }
            self.collect(&mut ended);
            ended.clear();
        }
        // The kernel takes a ring apart in its own time. The file is let go of now, with its locks: the next
        // to open it may come right after this.
        let _ = self.uring.submitter().unregister_files();
    }
}

#[cfg(test)]
pub(crate) mod tests;
