//! The descriptor of the frontend's through which a worker calls the driver, without ever waiting for it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use pollux_disk::wait::watchdog;
use pollux_memory::{Alarm, Misdeed};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Takes a descriptor that the frontend gave for kicks or calls, and makes it non-blocking: one that is full,
/// or that another has read first, must not hold a worker.
///
/// A pipe is opened anew with these `access` flags where that is allowed, since its flags would else be the frontend's
/// to change back. An eventfd cannot be; one that waits all the same is what the [`watchdog`] is for.
/// What is neither was refused before ([`notifier`](crate::session::notifier)).
pub fn non_blocking(fd: OwnedFd, access: OFlags) -> io::Result<OwnedFd> {
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Fifo {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(own) = open(path, flags, Mode::empty()) {
            return Ok(own);
        }
    }
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Ok(fd)
}

/// The descriptor through which one queue calls its driver, or tells that its ring is broken.
#[derive(Debug)]
pub struct Call {
    fd: OwnedFd,
    kind: Kind,
    /// The session's.
    alarm: Arc<Alarm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An eventfd or a pipe.
    Written,
    /// One end of a pair of sockets. Its flags are not touched: whether one `send` waits, that one says.
    Socket,
}

impl Call {
    /// Takes the frontend's descriptor, which ends the session by `alarm` if it ever blocks.
    pub fn new(file: File, alarm: &Arc<Alarm>) -> io::Result<Self> {
        let alarm = Arc::clone(alarm);
        let (fd, kind) = match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::Socket => (OwnedFd::from(file), Kind::Socket),
            _ => (non_blocking(file.into(), OFlags::WRONLY)?, Kind::Written),
        };
        Ok(Self { fd, kind, alarm })
    }

    /// Calls. One that finds the descriptor full needs no other: a call is waiting there already.
    pub fn call(&self) {
        // A session that is over has no driver to call, and must not hold the worker once more.
        if self.alarm.rung().is_some() {
            return;
        }
        let one = 1u64.to_ne_bytes();
        let called = match self.kind {
            Kind::Written => watchdog::write(&self.fd, &one),
            Kind::Socket => send(&self.fd, &one, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        };
        match called {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => self.alarm.ring(Misdeed::DescriptorBlocks),
            // The frontend closed its end. It is about to end the session, or to send another.
            Err(error) => tracing::debug!(%error, "a call could not be delivered"),
        }
    }
}

#[cfg(test)]
mod tests;
