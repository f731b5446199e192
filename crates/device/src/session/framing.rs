//! Waiting for a message until all of it is there.
//!
//! The crate `vhost` reads a message with as many system calls as it has parts, and each of them waits
//! for ever: a frontend that sends half a message and falls silent would keep a disk from all others. It also
//! takes a body that comes in two pieces for a broken one, and one system call that carried too many
//! descriptors for one that failed, whose bytes it then reads no more. It waits for a frontend that reads no answers as
//! well, even once this end is told to stop. So nothing is handed to it before it has been checked here: whole, with no
//! more descriptors than it takes, and with room for the answer.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pollux_disk::wait::{Sleeper, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{ioctl_fionread, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, recvmsg,
};

use super::mem_table::MemTable;
use super::refusal::Refusal;

/// How long the rest of a message may take once its first byte is there. A frontend sends each in one
/// piece; only one that was stopped in between, or that means harm, is ever late.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Request, flags and size of what follows, 32 bits each.
const HEADER: usize = 12;
/// The longest body that is read: what is longer is refused by its header.
const LONGEST: usize = 4096;
/// The most descriptors that one message carries: one for each region of a memory table.
const MOST_FDS: usize = 32;

/// The message that passes a channel for messages of ours.
const SET_BACKEND_REQ_FD: u32 = 21;

/// What the listener is called at which other frontends wait.
const OTHERS: Watch = Watch(0);

/// Watches a connection for whole messages.
pub struct Messages<'a> {
    stream: UnixStream,
    sleeper: Sleeper,
    patience: Duration,
    /// The listener at which other frontends wait, until the first of them has come.
    others: Option<BorrowedFd<'a>>,
    /// A copy of the descriptor that the next message passes, where that is for messages of ours.
    backend_channel: Option<OwnedFd>,
}

impl<'a> Messages<'a> {
    /// Watches `stream`, of which others may read, but only what was reported.
    pub fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        // One that we inherited may be otherwise, and then would be asked again and again.
        stream.set_nonblocking(false)?;
        let sleeper = Sleeper::new()?;
        sleeper.point().watch(stream.as_fd(), Watch::CHANNEL)?;
        Ok(Self {
            stream,
            sleeper,
            patience,
            others: None,
            backend_channel: None,
        })
    }

    /// Has the first frontend told of that comes to `listener` meanwhile.
    pub fn notice_others(&mut self, listener: BorrowedFd<'a>) -> io::Result<()> {
        self.sleeper.point().watch(listener, OTHERS)?;
        self.others = Some(listener);
        Ok(())
    }

    /// Waits until a message, or the end, can be read and a message answered without waiting. Calls `another` once
    /// another frontend waits, the first time only. `false`: nothing more can be answered.
    ///
    /// # Errors
    ///
    /// When only a part of one comes, or it comes with too many descriptors.
    pub fn next(&mut self, mut another: impl FnMut()) -> io::Result<bool> {
        let mut since = None;
        while !self.is_ready()? {
            // Silence between messages may last as long as it likes.
            let timeout = if ioctl_fionread(&self.stream)? == 0 {
                None
            } else {
                let since = *since.get_or_insert_with(Instant::now);
                let left = self.patience.checked_sub(since.elapsed());
                Some(left.ok_or_else(|| io::Error::other(Refusal::HalfMessage(self.patience)))?)
            };
            // Edge-triggered: it ends whenever more has come since the last time.
            let mut comes = false;
            self.sleeper
                .sleep(timeout, |name| comes |= name == OTHERS)?;
            // However many come after it, they do not wake this thread.
            if comes && let Some(listener) = self.others.take() {
                self.sleeper.point().unwatch(listener)?;
                another();
            }
        }
        self.has_room()
    }

    /// Waits until there is room for an answer, or either end is told that nothing more will come.
    fn has_room(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::OUT | PollFlags::RDHUP)];
        retry_on_intr(|| poll(&mut fds, None))?;
        Ok(fds[0].revents().contains(PollFlags::OUT))
    }

    /// The descriptor that the message passes which is ready, where it is for messages of ours. `vhost` takes that
    /// message, and keeps to itself what it makes of the descriptor; so here is a copy.
    pub fn backend_channel(&mut self) -> Option<OwnedFd> {
        self.backend_channel.take()
    }

    fn is_ready(&mut self) -> io::Result<bool> {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&self.stream, ends)];
        // Even one that does not wait ends early by a signal, or when a debugger stops the thread.
        if retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))? > 0 {
            return Ok(true);
        }
        let there = ioctl_fionread(&self.stream)?;
        if there < HEADER as u64 {
            return Ok(false);
        }
        let body = self.peek()?;
        Ok(body > LONGEST || there >= (HEADER + body) as u64)
    }

    /// What has arrived, where it is a message that the crate `vhost` does not read: the table of memory as User-Mode
    /// Linux 6.1 sends it.
    ///
    /// # Errors
    ///
    /// When it is not what it says.
    pub fn long_mem_table(&self) -> io::Result<Option<MemTable>> {
        let mut start = [0; MemTable::START];
        let peeked = self.receive(
            &mut start,
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::PEEK,
        );
        // Whatever it is if it is shorter, or cannot be read: others see that as well.
        let whole = peeked.is_ok_and(|peeked| peeked.bytes == MemTable::START);
        let Some(len) = MemTable::len(&start).filter(|_| whole) else {
            return Ok(None);
        };
        let mut bytes = vec![0; len];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut given = RecvAncillaryBuffer::new(&mut space);
        let mut there = self
            .receive(&mut bytes, &mut given, RecvFlags::empty())?
            .bytes;
        // All of it has arrived, though maybe not in one piece. Descriptors come with the first, or not at all.
        while there < len {
            let (rest, mut none) = (&mut bytes[there..], RecvAncillaryBuffer::default());
            match self.receive(rest, &mut none, RecvFlags::empty())?.bytes {
                // The frontend has gone in the middle of it.
                0 => return Ok(None),
                more => there += more,
            }
        }
        let files = |message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds.map(File::from)),
            _ => None,
        };
        let files = given.drain().filter_map(files).flatten().collect();
        Ok(Some(MemTable::new(&bytes, files)))
    }

    fn receive(
        &self,
        into: &mut [u8],
        ancillary: &mut RecvAncillaryBuffer<'_>,
        flags: RecvFlags,
    ) -> io::Result<RecvMsg> {
        let flags = flags | RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(into)];
        Ok(retry_on_intr(|| {
            recvmsg(&self.stream, &mut parts, ancillary, flags)
        })?)
    }

    /// What the header says about the length of the body.
    fn peek(&mut self) -> io::Result<usize> {
        let mut header = [0; HEADER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        // It closes what it is given: a peek copies descriptors, and leaves them where they are.
        let mut copies = RecvAncillaryBuffer::new(&mut space);
        let peeked = self.receive(&mut header, &mut copies, RecvFlags::PEEK)?;
        let given = |message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        };
        let mut given = copies.drain().filter_map(given).flatten();
        let [a, b, c, d, ..] = header;
        self.backend_channel = match u32::from_le_bytes([a, b, c, d]) {
            SET_BACKEND_REQ_FD => given.next(),
            _ => None,
        };
        // The buffer's alignment may let one more slip in.
        let fds = given.count() + usize::from(self.backend_channel.is_some());
        if fds > MOST_FDS || peeked.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other(Refusal::TooManyDescriptors(MOST_FDS)));
        }
        if peeked.bytes < HEADER {
            return Err(io::Error::other(Refusal::TornHeader));
        }
        let [.., a, b, c, d] = header;
        Ok(usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests;
