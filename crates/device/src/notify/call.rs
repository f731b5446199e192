//! The descriptor of the frontend's through which a worker calls the driver, without ever waiting for it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use pollux_memory::eventfd;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::pipe::non_blocking;

/// The descriptor through which one queue calls its driver, or tells that its ring is broken.
#[derive(Debug)]
pub struct Call {
    fd: OwnedFd,
    kind: Kind,
}

/// How it is used so that nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The kernel signals it, whatever its flags say.
    Eventfd,
    /// It does not wait for room, unless the frontend wants it to.
    Pipe,
    /// One end of a pair of sockets: whether one `send` waits, that one says, whatever the flags.
    Socket,
}

impl Call {
    /// Takes the frontend's descriptor. What is of no such kind was refused before
    /// ([`notifier`](crate::session::notifier)).
    ///
    /// # Errors
    ///
    /// What the kernel says of it.
    pub fn new(file: File) -> io::Result<Self> {
        let fd = OwnedFd::from(file);
        let kind = match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Socket => Kind::Socket,
            FileType::Fifo => {
                non_blocking(&fd)?;
                Kind::Pipe
            }
            _ => Kind::Eventfd,
        };
        Ok(Self { fd, kind })
    }

    /// Calls. One that finds the descriptor full needs no other: a call is waiting there already.
    pub fn call(&self) {
        let one = 1u64.to_ne_bytes();
        let called = match self.kind {
            Kind::Eventfd => eventfd::signal(&self.fd),
            Kind::Pipe => rustix::io::write(&self.fd, &one).map(drop),
            Kind::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                send(&self.fd, &one, flags).map(drop)
            }
        };
        match called {
            Ok(()) | Err(Errno::AGAIN) => {}
            // The frontend closed its end. It is about to end the session, or to send another.
            Err(error) => tracing::debug!(%error, "a call could not be delivered"),
        }
    }
}

#[cfg(test)]
mod tests;
