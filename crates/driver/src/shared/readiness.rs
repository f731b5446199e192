//! Tasks: one descriptor for the event loop that runs them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_disk::WaitPoint;
use pollux_disk::wait::Sleeper;

use crate::shared::parts::Transport;
use crate::shared::state::Shared;
use crate::sync::{Mutex, lock};

/// Readable when the device has called for tasks that wait on a queue. The thread that finds it readable
/// calls [`Readiness::drive`], which wakes them.
///
/// It works in `poll`, in `epoll` (level- and edge-triggered), and so in tokio's `AsyncFd`.
#[derive(Debug)]
pub struct Readiness {
    sleeper: Mutex<Sleeper>,
    /// The sleeper's, which does not change.
    fd: WaitPoint,
    shared: Arc<Shared>,
}

impl Readiness {
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let sleeper = Sleeper::new()?;
        shared.board.transport().watched_by(sleeper.point())?;
        // Whatever has called before this was there to hear it.
        shared.board.woken();
        Ok(Self {
            fd: sleeper.point().clone(),
            sleeper: Mutex::new(sleeper),
            shared,
        })
    }

    /// Completes what the device has finished, wakes the tasks that wait for it, and asks for the next
    /// call. The descriptor is not readable after this until there is more to do.
    pub fn drive(&self) {
        // Takes note of what made it readable, before the poll: what comes after makes it so again.
        let taken = lock(&self.sleeper).sleep(Some(Duration::ZERO), |_| ());
        debug_assert!(taken.is_ok(), "{taken:?}");
        self.shared.board.woken();
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.shared.board.transport().unwatched_by(&self.fd);
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Readiness {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }
}
