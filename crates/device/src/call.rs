//! Calling the driver, without ever waiting for it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::Errno;

/// The descriptor through which one queue calls its driver: an eventfd, or whatever else the
/// frontend chose, a pipe for instance.
#[derive(Debug)]
pub struct Call(OwnedFd);

impl Call {
    /// Takes the frontend's descriptor and makes it non-blocking: a pipe that is full or an eventfd
    /// that is saturated must not hold a worker.
    ///
    /// A pipe is opened anew where that is allowed, since its flags would else be the frontend's to
    /// change back. An eventfd cannot be: see DESIGN.md, who may lie to whom.
    pub fn new(file: File) -> io::Result<Self> {
        let fd = OwnedFd::from(file);
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Fifo {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(own) = open(path, flags, Mode::empty()) {
                return Ok(Self(own));
            }
        }
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Self(fd))
    }

    /// Calls. One that finds the descriptor full needs no other: a call is waiting there already.
    pub fn call(&self) {
        match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => {}
            // The frontend closed its end. It is about to end the session, or to send another.
            Err(error) => tracing::debug!(%error, "a call found nobody"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_does_not_hold_the_caller() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let theirs = writer.try_clone().unwrap();
        let call = Call::new(File::from(writer)).unwrap();
        // The frontend would have it wait.
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        // More than any pipe holds.
        for _ in 0..200_000 {
            call.call();
        }
        let mut word = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
        assert_eq!(u64::from_ne_bytes(word), 1);
    }
}
