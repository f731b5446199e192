//! What kicks, calls and errors may be told through: eventfds and pipes, and the latter two through one end of a pair of
//! sockets as well (User-Mode Linux does so).
//!
//! Workers wait for these descriptors, read and write them. Of an eventfd, a pipe or a pair of sockets it is the kernel that
//! says whether that must wait, and it can be told not to. A socket that has a name, or whose other end has one, is no pair:
//! what is sent there in our name may mean something to somebody. A file may lie on a file system that is a
//! program of the frontend's (FUSE), and to wait for it, to read or to write it is to wait for that program;
//! of a directory no kick ever comes. So anything else is refused at the door.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{FileType, fstat, readlink};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, getpeername, getsockname, sockopt};

use crate::refusal::Refusal;

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Kick,
    Call,
    Error,
}

/// Refuses what is not fit for its use.
pub fn check(index: u8, what: Use, file: Option<&File>) -> Result<(), Refusal> {
    let Some(file) = file else { return Ok(()) };
    let machine = |error: Errno| Refusal::Machine {
        doing: "tell what kind of descriptor this is",
        source: error.into(),
    };
    let kind = match FileType::from_raw_mode(fstat(file).map_err(machine)?.st_mode) {
        FileType::Fifo => return Ok(()),
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Socket if what == Use::Kick => "a socket",
        FileType::Socket if is_one_of_a_pair(file) => return Ok(()),
        FileType::Socket => "a socket that is none of a pair of unix sockets",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        // What has no place in any file system: eventfds, and others, told apart by name.
        FileType::Unknown if is_eventfd(file) => return Ok(()),
        FileType::Unknown => "something else of the kernel's",
    };
    let what = match what {
        Use::Kick => "kick",
        Use::Call => "call",
        Use::Error => "error",
    };
    Err(Refusal::NotifierKind { index, what, kind })
}

/// A pair of stream or datagram sockets of this machine: connected, and neither end has a name.
fn is_one_of_a_pair(file: &File) -> bool {
    let kind = sockopt::socket_type(file);
    matches!(kind, Ok(SocketType::STREAM | SocketType::DGRAM))
        && getsockname(file).is_ok_and(|name| is_unnamed(&name))
        && getpeername(file).is_ok_and(|name| name.is_some_and(|name| is_unnamed(&name)))
}

/// A unix socket's address without a name is its family alone.
fn is_unnamed(name: &SocketAddrAny) -> bool {
    name.address_family() == AddressFamily::UNIX && name.addr_len() as usize == size_of::<u16>()
}

/// True as well where there is no `/proc` to ask: all that it could be is harmless.
fn is_eventfd(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    readlink(path, Vec::new()).map_or(true, |name| name.as_bytes() == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use rustix::event::{EventfdFlags, epoll, eventfd};
    use rustix::net::{SocketFlags, socketpair};

    use super::*;

    fn checked(fd: impl Into<OwnedFd>, what: Use) -> Result<(), Refusal> {
        check(0, what, Some(&File::from(fd.into())))
    }

    #[test]
    fn eventfds_and_pipes_are_taken_and_nothing_else() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(checked(eventfd(0, EventfdFlags::empty()).unwrap(), Use::Kick).is_ok());
        assert!(checked(reader, Use::Kick).is_ok());
        assert!(checked(writer, Use::Call).is_ok());
        assert!(check(0, Use::Kick, None).is_ok());
        let (socket, _other) = UnixStream::pair().unwrap();
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
            let refusal = checked(fd, Use::Kick).unwrap_err().to_string();
            assert!(refusal.contains(kind), "{refusal}");
        }
    }

    #[test]
    fn one_of_a_pair_of_sockets_may_be_called() {
        for what in [Use::Call, Use::Error] {
            let (stream, _other) = UnixStream::pair().unwrap();
            let (datagram, _other) = UnixDatagram::pair().unwrap();
            checked(stream, what).unwrap();
            checked(datagram, what).unwrap();
        }
    }

    #[test]
    fn any_other_socket_may_not() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let connected = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let log = folder.path().join("log");
        let _log = UnixDatagram::bind(&log).unwrap();
        let datagram = UnixDatagram::unbound().unwrap();
        datagram.connect(&log).unwrap();
        let (packets, _other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for fd in [
            OwnedFd::from(connected),
            accepted.into(),
            listener.into(),
            datagram.into(),
            UnixDatagram::unbound().unwrap().into(),
            TcpStream::connect(address).unwrap().into(),
            tcp.into(),
            packets,
        ] {
            let refusal = checked(fd, Use::Call).unwrap_err().to_string();
            assert!(refusal.contains("none of a pair"), "{refusal}");
        }
    }
}
