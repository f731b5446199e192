//! How a session learns that its peer has done what no message tells.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::net::{Shutdown, shutdown};

/// What a peer did to the process that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// Memory that it shares cannot be reached any more.
    MemoryLost,
    /// A descriptor that it gave held the thread that used it.
    DescriptorBlocks,
}

/// Ends one session from wherever a misdeed of its peer shows, be that a signal handler: the session's
/// connection is shut down, which its thread sees as it sees any other end, and the peer sees, too.
///
/// It need not be read on the way of a request.
#[derive(Debug)]
pub struct Alarm {
    connection: OwnedFd,
    /// 0, or the first misdeed.
    rung: AtomicU8,
}

impl Alarm {
    /// An alarm that shuts `connection` down: a duplicate of the session's socket.
    #[must_use]
    pub const fn new(connection: OwnedFd) -> Self {
        let rung = AtomicU8::new(0);
        Self { connection, rung }
    }

    /// Ends the session. Of several misdeeds the first one counts.
    ///
    /// Async-signal-safe: one atomic operation and one system call.
    pub fn ring(&self, misdeed: Misdeed) {
        let code = match misdeed {
            Misdeed::MemoryLost => 1,
            Misdeed::DescriptorBlocks => 2,
        };
        let _ = self
            .rung
            .compare_exchange(0, code, Ordering::Release, Ordering::Relaxed);
        // Fails only where the connection has ended already.
        let _ = shutdown(&self.connection, Shutdown::Both);
    }

    /// Why it was rung, if it was.
    #[must_use]
    pub fn rung(&self) -> Option<Misdeed> {
        match self.rung.load(Ordering::Acquire) {
            1 => Some(Misdeed::MemoryLost),
            2 => Some(Misdeed::DescriptorBlocks),
            _ => None,
        }
    }
}
