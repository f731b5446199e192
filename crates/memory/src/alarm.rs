//! How a session, or a driver, learns that memory which it shares is lost: no message tells.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{Shutdown, shutdown};

/// Ends one session from wherever the loss shows, which is a signal handler: the session's connection is shut down,
/// which its thread sees as it sees any other end, and the peer sees, too.
///
/// It need not be read on the way of a request.
#[derive(Debug)]
pub struct Alarm {
    connection: Option<OwnedFd>,
    is_rung: AtomicBool,
}

impl Alarm {
    /// An alarm that shuts `connection` down: a duplicate of the session's socket.
    #[must_use]
    pub const fn new(connection: OwnedFd) -> Self {
        let is_rung = AtomicBool::new(false);
        Self {
            connection: Some(connection),
            is_rung,
        }
    }

    /// An alarm that ends nothing: it has to be asked.
    #[must_use]
    pub const fn silent() -> Self {
        let is_rung = AtomicBool::new(false);
        Self {
            connection: None,
            is_rung,
        }
    }

    /// Ends the session, if it has one.
    ///
    /// Async-signal-safe: one atomic operation and one system call.
    pub fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        if let Some(connection) = &self.connection {
            // Fails only where the connection has ended already.
            let _ = shutdown(connection, Shutdown::Both);
        }
    }

    /// Was it rung?
    #[must_use]
    pub fn is_rung(&self) -> bool {
        self.is_rung.load(Ordering::Acquire)
    }
}
