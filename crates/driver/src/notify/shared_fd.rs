//! An eventfd that the server has as well, and no thread of ours is held by.
//!
//! Whether it blocks is a flag of the open file, which the server can clear; then it can fill the descriptor, or read
//! it first. So it is used through the [`watchdog`], which tells where that happened: the device is given up.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Weak;

use pollux_disk::wait::watchdog;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::call::EventFd;

/// Who is told that the server has had a thread wait.
pub trait OnBlocked: Debug + Send + Sync {
    /// By an eventfd of queue `index`.
    fn blocked(&self, index: u16);
}

/// The eventfd, of one queue.
#[derive(Debug)]
pub struct SharedFd {
    fd: OwnedFd,
    told: Weak<dyn OnBlocked>,
    index: u16,
}

impl SharedFd {
    /// A new one, of queue `index`; `told` hears that the server had a thread wait.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new(told: Weak<dyn OnBlocked>, index: u16) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, told, index })
    }

    /// Adds `times` to it. It fails by `EAGAIN` where it is full, and by `EINTR` where the server had us wait over that.
    pub fn add(&self, times: u64) -> rustix::io::Result<()> {
        let added = watchdog::write(&self.fd, &times.to_ne_bytes());
        self.told_of(added).map(drop)
    }

    fn told_of(&self, done: rustix::io::Result<usize>) -> rustix::io::Result<usize> {
        if done == Err(Errno::INTR)
            && let Some(told) = self.told.upgrade()
        {
            told.blocked(self.index);
        }
        done
    }
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl EventFd for SharedFd {
    fn read(&self) -> u64 {
        let mut times = [0; 8];
        let read = watchdog::read(&self.fd, &mut times);
        match self.told_of(read) {
            Ok(_) => u64::from_ne_bytes(times),
            Err(_) => 0,
        }
    }

    fn signal(&self, times: u64) {
        // Where the server has filled it, it may as well not call at all.
        let _ = self.add(times);
    }
}

#[cfg(test)]
mod tests;
