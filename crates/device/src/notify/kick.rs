//! The descriptor of the frontend's through which the driver kicks a queue.
//!
//! An eventfd is watched and not read: each write to it is an edge of its own for every worker that watches it. A
//! frontend may give one to several queues, which may be served by several workers; one that read it would take the
//! others' kicks away before these have seen them. (2^64 kicks are never made.) It is read when its queue stops, as the
//! frontend may use it itself from then on; the other queues that it may have kicked are told to poll
//! (`Command::PollAll`). A pipe must be emptied, or its writer waits, so it belongs to one queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pollux_memory::eventfd;
use rustix::fs::{FileType, fstat};

use super::pipe::non_blocking;

/// At most so many bytes of a pipe are read at once: as many as it holds, unless it was made larger. A frontend that
/// fills it meanwhile has more read after the next kick.
const MOST: usize = 64 << 10;

/// The descriptor through which the driver kicks one queue.
#[derive(Debug)]
pub struct KickFd {
    fd: OwnedFd,
    /// Which pipe it is, if it is one: the numbers of its file system and of its inode.
    pipe: Option<(u64, u64)>,
}

impl KickFd {
    /// Takes the frontend's descriptor, an eventfd or a pipe ([`notifier`](crate::session::notifier)).
    ///
    /// # Errors
    ///
    /// What the kernel says of it.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let status = fstat(&fd)?;
        let pipe = match FileType::from_raw_mode(status.st_mode) {
            FileType::Fifo => {
                non_blocking(&fd)?;
                Some((status.st_dev, status.st_ino))
            }
            _ => None,
        };
        Ok(Self { fd, pipe })
    }

    /// Is this the same pipe as `other`?
    pub fn is_pipe_of(&self, other: &Self) -> bool {
        self.pipe.is_some() && self.pipe == other.pipe
    }

    /// There may have been a kick: makes room for more, if that is needed. Was there one, as far as can be told?
    pub fn heard(&self) -> bool {
        !self.is_pipe() || self.empty()
    }

    /// Must it be read, lest its writer waits?
    pub fn is_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads off what there is, if there is anything.
    pub fn empty(&self) -> bool {
        if !self.is_pipe() {
            return eventfd::read(&self.fd).is_ok();
        }
        let mut some = [0; 4096];
        let mut left = MOST;
        while left > 0 {
            match rustix::io::read(&self.fd, &mut some) {
                Ok(read @ 1..) => left = left.saturating_sub(read),
                _ => break,
            }
        }
        left < MOST
    }
}

impl AsFd for KickFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
