//! An eventfd that the server has as well, and no thread of ours is held by.
//!
//! Whether it blocks is a flag of the open file, which the server can clear; then it can fill the descriptor, or read
//! it first. So it is used through the [`watchdog`], which tells where that happened: the device is given up. A server
//! that another takes the place of keeps it, and could read what is meant for that one: each server gets a new one.

use std::fmt::Debug;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, Weak};

use pollux_disk::WaitPoint;
use pollux_disk::wait::{Watch, watchdog};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::call::EventFd;

/// Nobody calls more often before they are read.
const MOST: u64 = u32::MAX as u64;

/// Is told that the server has had a thread wait.
pub trait OnBlocked: Debug + Send + Sync {
    /// By an eventfd of queue `index`.
    fn blocked(&self, index: u16);
}

/// The eventfd, of one queue.
#[derive(Debug)]
pub struct SharedFd {
    /// Written to when the server changes.
    fd: RwLock<OwnedFd>,
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
        let fd = RwLock::new(Self::fresh()?);
        Ok(Self { fd, told, index })
    }

    /// An eventfd that no server has yet.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn fresh() -> io::Result<OwnedFd> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
    }

    /// Takes a fresh one. Wait points that watch the old one are for the caller, and so is its close, which takes the
    /// longer the more watches the server has: not under this lock, nor that of the list of queues.
    #[must_use]
    pub fn renew(&self, fresh: OwnedFd) -> OwnedFd {
        let mut fd = self.fd.write().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut fd, fresh)
    }

    /// A copy for the server.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.fd().try_clone()
    }

    /// It ends the sleep at `point` from now on.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl` says.
    pub fn watched_by(&self, point: &WaitPoint) -> io::Result<()> {
        point.watch(self.fd().as_fd(), Watch::CHANNEL)
    }

    /// Takes [`SharedFd::watched_by`] back.
    pub fn unwatched_by(&self, point: &WaitPoint) {
        // It fails only where it is not watched.
        let _ = point.unwatch(self.fd().as_fd());
    }

    fn fd(&self) -> RwLockReadGuard<'_, OwnedFd> {
        self.fd.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `times` to it. It fails by `EAGAIN` where it is full, and by `EINTR` where the server had us wait over that.
    pub fn add(&self, times: u64) -> rustix::io::Result<()> {
        let added = watchdog::write(&*self.fd(), &times.to_ne_bytes());
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

impl EventFd for SharedFd {
    fn read(&self) -> u64 {
        let mut times = [0; 8];
        let read = watchdog::read(&*self.fd(), &mut times);
        match self.told_of(read) {
            // The server can write any number, and what is read may be signalled again, to another one's.
            Ok(_) => u64::from_ne_bytes(times).min(MOST),
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
