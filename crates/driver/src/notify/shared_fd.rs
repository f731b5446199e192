//! An eventfd that the server has as well, and no thread of ours is held by ([`eventfd`]).
//!
//! A server that another takes the place of keeps it, and could read what is meant for that one: each server gets a new
//! one.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use pollux_disk::WaitPoint;
use pollux_disk::wait::Watch;
use pollux_memory::eventfd;
use rustix::event::EventfdFlags;

use super::call::EventFd;

/// Nobody calls more often before they are read.
const MOST: u64 = u32::MAX as u64;

/// The eventfd, of one queue.
#[derive(Debug)]
pub struct SharedFd {
    /// Written to when the server changes.
    fd: RwLock<OwnedFd>,
}

impl SharedFd {
    /// A new one.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = RwLock::new(Self::fresh()?);
        Ok(Self { fd })
    }

    /// An eventfd that no server has yet.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn fresh() -> io::Result<OwnedFd> {
        Ok(rustix::event::eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?)
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
}

impl EventFd for SharedFd {
    fn read(&self) -> u64 {
        // The server can write any number.
        eventfd::read(&*self.fd()).map_or(0, |times| times.min(MOST))
    }

    fn signal(&self) {
        if let Err(error) = eventfd::signal(&*self.fd()) {
            tracing::error!(%error, "an eventfd cannot be signalled: a kick or a call is lost");
        }
    }
}

#[cfg(test)]
mod tests;
