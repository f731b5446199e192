//! The descriptor of the frontend's through which the driver kicks a queue.
//!
//! An eventfd is watched and not read: each write to it is an edge of its own for every worker that watches it. A frontend
//! may give one to several queues, which may be served by several workers; who read it would take the others' kicks away
//! before these have seen them. (2^64 kicks are never made.) It is read when its queue stops, as the frontend may use it itself
//! from then on; whoever else it may have kicked is told to look (`Command::Look`). A pipe must be
//! emptied, or its writer waits, so it belongs to one queue.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use pollux_memory::{Alarm, Misdeed};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::call::non_blocking;
use crate::watchdog::watched;

/// At most so many bytes of a pipe are read at once: as many as it holds, unless somebody made it larger. One who fills it
/// meanwhile has more read after the next kick.
const MOST: usize = 64 << 10;

/// The descriptor through which the driver kicks one queue.
#[derive(Debug)]
pub struct KickFd {
    fd: OwnedFd,
    /// Which pipe it is, if it is one: the numbers of its file system and of its inode.
    pipe: Option<(u64, u64)>,
    /// The session's.
    alarm: Arc<Alarm>,
}

impl KickFd {
    /// Takes the frontend's descriptor, which ends the session by `alarm` if it ever blocks.
    pub fn new(fd: OwnedFd, alarm: &Arc<Alarm>) -> io::Result<Self> {
        let status = fstat(&fd)?;
        let is_pipe = FileType::from_raw_mode(status.st_mode) == FileType::Fifo;
        Ok(Self {
            fd: non_blocking(fd, OFlags::RDONLY)?,
            pipe: is_pipe.then_some((status.st_dev, status.st_ino)),
            alarm: Arc::clone(alarm),
        })
    }

    /// Is this the same pipe as `other`?
    pub fn is_pipe_of(&self, other: &Self) -> bool {
        self.pipe.is_some() && self.pipe == other.pipe
    }

    /// There may have been a kick: makes room for more, if that is needed. Was there one, as far as can be told?
    pub fn heard(&self) -> bool {
        !self.is_pipe() || self.empty()
    }

    /// Must it be read, lest its writer waits?
    pub fn is_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads off what there is, if there is anything.
    pub fn empty(&self) -> bool {
        let mut some = [0; 4096];
        let mut left = MOST;
        while left > 0 {
            match self.read(&mut some) {
                Ok(read @ 1..) => left = left.saturating_sub(read),
                _ => break,
            }
        }
        left < MOST
    }

    fn read(&self, into: &mut [u8]) -> rustix::io::Result<usize> {
        if self.alarm.rung().is_some() {
            return Ok(0);
        }
        // `NOWAIT` whatever the flags say; the position is that of what has none. Kernels that cannot do it have the
        // watchdog.
        let parts = &mut [IoSliceMut::new(into)];
        match preadv2(&self.fd, parts, u64::MAX, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => watched(|| rustix::io::read(&self.fd, into))
                .inspect_err(|error| {
                    if *error == Errno::INTR {
                        self.alarm.ring(Misdeed::DescriptorBlocks);
                    }
                }),
            read => read,
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

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::fcntl_setfl;
    use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

    use super::*;
    use crate::watchdog;

    fn alarm() -> Arc<Alarm> {
        watchdog::start().unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        Arc::new(Alarm::new(ours.into()))
    }

    #[test]
    fn a_full_pipe_is_emptied_at_once() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let kick = KickFd::new(reader.try_clone().unwrap(), &alarm()).unwrap();
        // Its flags are ours alone.
        fcntl_setfl(&reader, OFlags::empty()).unwrap();
        let room = fcntl_getpipe_size(&writer).unwrap();
        for _ in 0..3 {
            assert_eq!(rustix::io::write(&writer, &vec![1; room]), Ok(room));
            assert!(kick.heard());
        }
        assert!(!kick.heard());
        drop(writer);
        assert!(!kick.heard());
    }

    #[test]
    fn an_eventfd_is_left_as_it_is_and_waited_for_by_nobody() {
        let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
        let alarm = alarm();
        let kick = KickFd::new(theirs.try_clone().unwrap(), &alarm).unwrap();
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        assert!(kick.heard());
        rustix::io::write(&theirs, &3u64.to_ne_bytes()).unwrap();
        assert!(kick.heard());
        let mut word = [0; 8];
        assert_eq!(rustix::io::read(&theirs, &mut word), Ok(8));
        assert_eq!((u64::from_ne_bytes(word), alarm.rung()), (3, None));
        rustix::io::write(&theirs, &3u64.to_ne_bytes()).unwrap();
        fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
        assert!(kick.empty());
        assert_eq!(rustix::io::read(&theirs, &mut word), Err(Errno::AGAIN));
        // Where it can be read without waiting, whatever its flags say, nothing has happened. Elsewhere it was
        // found waiting, and its session ends.
        fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        assert!(!kick.empty());
        let rung = alarm.rung();
        assert!(matches!(rung, None | Some(Misdeed::DescriptorBlocks)));
    }

    #[test]
    fn a_pipe_is_known_again_whatever_its_descriptor() {
        let alarm = alarm();
        let kick = |fd: &OwnedFd| KickFd::new(fd.try_clone().unwrap(), &alarm).unwrap();
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (other, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        assert!(kick(&reader).is_pipe_of(&kick(&reader)));
        assert!(kick(&reader).is_pipe_of(&kick(&writer)));
        assert!(!kick(&reader).is_pipe_of(&kick(&other)));
        assert!(!kick(&event).is_pipe_of(&kick(&event)));
    }
}
