//! Descriptors of the frontend's that a worker uses: kicks are read from one, the driver is called through
//! another. Never waiting for either.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pollux_memory::{Alarm, Misdeed};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::watchdog::watched;

/// Takes a descriptor that the frontend gave for kicks or calls, and makes it non-blocking: one that is full,
/// or that somebody else has read first, must not hold a worker.
///
/// A pipe is opened anew with these `access` flags where that is allowed, since its flags would else be the frontend's
/// to change back. An eventfd cannot be; one that waits all the same is what [`watched`] is for.
/// What is neither was refused before ([`notifier`](crate::notifier)).
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

/// The descriptor through which one queue calls its driver: an eventfd, or whatever else the
/// frontend chose, a pipe for instance.
#[derive(Debug)]
pub struct Call {
    fd: OwnedFd,
    /// The session's.
    alarm: Arc<Alarm>,
}

impl Call {
    /// Takes the frontend's descriptor, which ends the session by `alarm` if it ever blocks.
    pub fn new(file: File, alarm: &Arc<Alarm>) -> io::Result<Self> {
        let fd = non_blocking(OwnedFd::from(file), OFlags::WRONLY)?;
        let alarm = Arc::clone(alarm);
        Ok(Self { fd, alarm })
    }

    /// Calls. One that finds the descriptor full needs no other: a call is waiting there already.
    pub fn call(&self) {
        // A session that is over has nobody to call, and must not hold the worker once more.
        if self.alarm.rung().is_some() {
            return;
        }
        match watched(|| rustix::io::write(&self.fd, &1u64.to_ne_bytes())) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => self.alarm.ring(Misdeed::DescriptorBlocks),
            // The frontend closed its end. It is about to end the session, or to send another.
            Err(error) => tracing::debug!(%error, "a call found nobody"),
        }
    }
}

/// The descriptor through which the driver kicks one queue.
#[derive(Debug)]
pub struct KickFd {
    fd: OwnedFd,
    /// The session's.
    alarm: Arc<Alarm>,
}

impl KickFd {
    /// Takes the frontend's descriptor, which ends the session by `alarm` if it ever blocks.
    pub fn new(fd: OwnedFd, alarm: &Arc<Alarm>) -> io::Result<Self> {
        let fd = non_blocking(fd, OFlags::RDONLY)?;
        let alarm = Arc::clone(alarm);
        Ok(Self { fd, alarm })
    }

    /// A second one for the same kicks.
    pub fn try_clone(&self) -> io::Result<Self> {
        let alarm = Arc::clone(&self.alarm);
        Ok(Self {
            fd: self.fd.try_clone()?,
            alarm,
        })
    }

    /// Reads off the kicks that have come, and says how many. Whatever is not an eventfd counts as one kick a
    /// read.
    pub fn drain(&self) -> u64 {
        if self.alarm.rung().is_some() {
            return 0;
        }
        let mut count = [0; 8];
        // `NOWAIT` whatever the flags say; the position is that of what has none. Kernels that cannot do it for
        // each kind of descriptor have the watchdog.
        let parts = &mut [IoSliceMut::new(&mut count)];
        let read = match preadv2(&self.fd, parts, u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                watched(|| rustix::io::read(&self.fd, &mut count)).inspect_err(|error| {
                    if *error == Errno::INTR {
                        self.alarm.ring(Misdeed::DescriptorBlocks);
                    }
                })
            }
            read => read,
        };
        match read {
            Ok(8) => u64::from_ne_bytes(count),
            Ok(_) => 1,
            Err(_) => 0,
        }
    }
}

impl AsFd for KickFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::watchdog;

    /// An alarm and the peer of the connection that it ends.
    fn alarm() -> (Arc<Alarm>, UnixStream) {
        watchdog::start().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(Alarm::new(ours.into())), theirs)
    }

    /// An eventfd that takes no more.
    fn saturated() -> OwnedFd {
        let fd = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        fd
    }

    #[test]
    fn a_full_pipe_does_not_hold_the_caller() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let theirs = writer.try_clone().unwrap();
        let (alarm, _peer) = alarm();
        let call = Call::new(File::from(writer), &alarm).unwrap();
        // The frontend would have it wait.
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        // More than any pipe holds.
        for _ in 0..200_000 {
            call.call();
        }
        assert_eq!(alarm.rung(), None);
        let mut word = [0; 8];
        assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
        assert_eq!(u64::from_ne_bytes(word), 1);
    }

    #[test]
    fn a_saturated_eventfd_is_as_good_as_called() {
        let theirs = saturated();
        let (alarm, _peer) = alarm();
        let call = Call::new(File::from(theirs.try_clone().unwrap()), &alarm).unwrap();
        for _ in 0..1000 {
            call.call();
        }
        assert_eq!(alarm.rung(), None);
    }

    #[test]
    fn a_saturated_eventfd_that_blocks_again_ends_the_session_and_holds_nobody() {
        let theirs = saturated();
        let (alarm, _peer) = alarm();
        let call = Call::new(File::from(theirs.try_clone().unwrap()), &alarm).unwrap();
        thread::scope(|scope| {
            // Several of the frontend's threads clear the flag, and fill what somebody has drained.
            for _ in 0..2 {
                scope.spawn(|| {
                    while alarm.rung().is_none() {
                        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while alarm.rung().is_none() {
                        call.call();
                    }
                });
            }
        });
        assert_eq!(alarm.rung(), Some(Misdeed::DescriptorBlocks));
        for _ in 0..1000 {
            call.call();
        }
    }

    #[test]
    fn a_kick_that_somebody_else_has_read_holds_nobody() {
        let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
        let (alarm, _peer) = alarm();
        let kick = KickFd::new(theirs.try_clone().unwrap(), &alarm).unwrap();
        assert_eq!(kick.drain(), 0);
        rustix::io::write(&theirs, &3u64.to_ne_bytes()).unwrap();
        assert_eq!(kick.drain(), 3);
        assert_eq!(alarm.rung(), None);
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        // Where it can be read without waiting, whatever its flags say, nothing has happened. Elsewhere it was
        // found waiting, and its session ends.
        assert_eq!(kick.drain(), 0);
        assert!(matches!(
            alarm.rung(),
            None | Some(Misdeed::DescriptorBlocks)
        ));
    }
}
