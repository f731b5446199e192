use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{SocketFlags, socketpair};

use super::*;

fn checked(fd: impl Into<OwnedFd>, what: Use) -> Result<(), Refusal> {
    check(0, what, Some(&File::from(fd.into())), false)
}

#[test]
fn eventfds_are_taken_and_nothing_else() {
    assert!(checked(eventfd(0, EventfdFlags::empty()).unwrap(), Use::Kick).is_ok());
    assert!(check(0, Use::Kick, None, false).is_ok());
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
fn pipes_are_taken_where_there_is_no_other_disk() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    for (end, what) in [(reader, Use::Kick), (writer, Use::Call)] {
        let end = File::from(end);
        check(0, what, Some(&end), true).unwrap();
        let refusal = check(0, what, Some(&end), false).unwrap_err();
        assert!(matches!(refusal, Refusal::Pipe { .. }), "{refusal}");
    }
}

#[test]
fn one_of_a_pair_of_sockets_may_be_called() {
    for what in [Use::Call, Use::Error] {
        let (stream, _other) = UnixStream::pair().unwrap();
        checked(stream, what).unwrap();
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
        UnixDatagram::pair().unwrap().0.into(),
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
