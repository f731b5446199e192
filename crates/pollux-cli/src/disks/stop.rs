//! How the sessions of one disk are ended from another thread, and which its frontend is.

use std::io;
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux::memory::Peer;
use pollux_threads::lock;

use rustix::event::{EventfdFlags, eventfd};

/// Ends the sessions of one disk from another thread.
pub struct Stop {
    event: OwnedFd,
    stopping: AtomicBool,
    connection: Mutex<Option<UnixStream>>,
}

/// A frontend uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse;

impl Stop {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            event,
            stopping: AtomicBool::new(false),
            connection: Mutex::default(),
        })
    }

    fn tell(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // It can fail only when it is signalled already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Ends the disk if no frontend is connected. One that connects at this moment is disconnected.
    pub fn stop_unused(&self) -> Result<(), InUse> {
        let connection = lock(&self.connection);
        if connection.is_some() {
            return Err(InUse);
        }
        self.tell();
        Ok(())
    }

    pub fn stop(&self) {
        self.tell();
        if let Some(stream) = &*lock(&self.connection) {
            // The session sees the end of it, lets everything end that it has taken, and only then does the
            // frontend see it: one that came back before would hand the same requests to the next process.
            // Fails only where the frontend has gone.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The process at the other end of the connection, if there is one.
    pub fn frontend(&self) -> Option<Peer> {
        let connection = lock(&self.connection);
        connection.as_ref().and_then(|stream| Peer::of(stream).ok())
    }

    /// Remembers the connection that `stop` is to end.
    pub fn set(&self, stream: Option<UnixStream>) {
        // Closed last, and without the lock: what the frontend has left in it may be slow to close.
        let _old = mem::replace(&mut *lock(&self.connection), stream);
        if self.stopping() {
            self.stop();
        }
    }
}

/// Ready to read once it is to end.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
