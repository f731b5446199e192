//! What kicks, calls and errors may be told through: eventfds and pipes.
//!
//! Workers wait for these descriptors, read and write them. Of an eventfd or a pipe it is the kernel that
//! says whether that must wait, and it can be told not to. A file may lie on a file system that is a
//! program of the frontend's (FUSE), and to wait for it, to read or to write it is to wait for that program;
//! of a directory no kick ever comes. So anything else is refused at the door.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{FileType, fstat, readlink};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// Refuses what is neither an eventfd nor a pipe. `what`: `kick`, `call` or `error`.
pub fn check(index: u8, what: &'static str, file: Option<&File>) -> Result<(), Refusal> {
    let Some(file) = file else { return Ok(()) };
    let machine = |error: Errno| Refusal::Machine {
        doing: "tell what kind of descriptor this is",
        source: error.into(),
    };
    let kind = match FileType::from_raw_mode(fstat(file).map_err(machine)?.st_mode) {
        FileType::Fifo => return Ok(()),
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        // What has no place in any file system: eventfds, and others, told apart by name.
        FileType::Unknown if is_eventfd(file) => return Ok(()),
        FileType::Unknown => "something else of the kernel's",
    };
    Err(Refusal::NotifierKind { index, what, kind })
}

/// True as well where there is no `/proc` to ask: all that it could be is harmless.
fn is_eventfd(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    readlink(path, Vec::new()).map_or(true, |name| name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, epoll, eventfd};

    use super::*;

    fn checked(fd: OwnedFd) -> Result<(), Refusal> {
        check(0, "kick", Some(&File::from(fd)))
    }

    #[test]
    fn eventfds_and_pipes_are_taken_and_nothing_else() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(checked(eventfd(0, EventfdFlags::empty()).unwrap()).is_ok());
        assert!(checked(reader).is_ok());
        assert!(checked(writer).is_ok());
        assert!(check(0, "kick", None).is_ok());
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::empty()).unwrap();
        let directory = File::open("/").unwrap();
        let device = File::open("/dev/null").unwrap();
        for (fd, kind) in [
            (OwnedFd::from(tempfile::tempfile().unwrap()), "a file"),
            (directory.into(), "a directory"),
            (device.into(), "a device"),
            (socket.into(), "a socket"),
            (epoll, "something else"),
        ] {
            let refusal = checked(fd).unwrap_err().to_string();
            assert!(refusal.contains(kind), "{refusal}");
        }
    }
}
