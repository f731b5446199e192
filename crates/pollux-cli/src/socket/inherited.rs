//! Sockets that another process has opened and passed on by number.
//!
//! A number says nothing of what is open under it: if it was not passed, the next thing that this program opens has it.
//! So all of them are taken over before anything else is opened.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::io::{Errno, fcntl_getfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, getpeername, getsockname};

use super::error::SocketError;
use super::listener::{Listener, Socket};

/// What was passed, by number; `None` once it is in use.
#[derive(Debug, Default)]
pub struct Inherited(BTreeMap<i32, Option<OwnedFd>>);

fn bad(fd: i32, why: &str) -> SocketError {
    SocketError::Fd {
        fd,
        why: why.to_owned(),
    }
}

impl Inherited {
    /// Takes over what is open under these `numbers`. Nothing in this process may have been opened before that is
    /// still open.
    pub fn take_over(numbers: impl IntoIterator<Item = i32>) -> Result<Self, SocketError> {
        let mut inherited = Self::default();
        for number in numbers {
            inherited.add(number)?;
        }
        Ok(inherited)
    }

    fn add(&mut self, number: i32) -> Result<(), SocketError> {
        if number <= 2 {
            return Err(bad(
                number,
                "pass a socket as descriptor 3 or higher; 0 to 2 are the standard streams",
            ));
        }
        // It may be named by two: by `--fd`, and by the service manager.
        if self.0.contains_key(&number) {
            return Ok(());
        }
        // SAFETY: only asked whether it is open, which is right to ask of any number.
        let open = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
        if open.is_err() {
            return Err(bad(
                number,
                "this descriptor is not open; the parent process has to pass it on",
            ));
        }
        // SAFETY: it is open, and `take_over`'s caller has opened nothing before: so it was passed to us to own, and
        // nothing else in this process knows of it. The map above has it once.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        self.0.insert(number, Some(fd));
        Ok(())
    }

    /// Is one of them the socket at `path`?
    pub fn listens_at(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        self.0.values().flatten().any(|fd| {
            let address = getsockname(fd).and_then(SocketAddrUnix::try_from);
            let address = address.ok();
            let bound = address.as_ref().and_then(SocketAddrUnix::path);
            bound.is_some_and(|bound| bound.to_bytes() == path)
        })
    }

    /// The socket of that number, which is used once.
    pub fn socket(&mut self, number: i32) -> Result<Socket, SocketError> {
        let place = self.0.get_mut(&number);
        let fd = place.ok_or_else(|| bad(number, "this descriptor was not taken over"))?;
        let fd = fd.take().ok_or_else(|| {
            let why =
                "two disks are to be served on this descriptor; give each a socket of its own";
            bad(number, why)
        })?;
        classify(fd).map_err(|why| bad(number, why))
    }
}

/// What `fd` is, or why nothing can be served on it.
fn classify(fd: OwnedFd) -> Result<Socket, &'static str> {
    let domain = socket_domain(&fd).map_err(|_| "this descriptor is not a socket")?;
    if domain != AddressFamily::UNIX {
        return Err("this descriptor is a socket, but not a unix socket");
    }
    if socket_type(&fd) != Ok(SocketType::STREAM) {
        return Err("this descriptor is a unix socket, but not one of type SOCK_STREAM");
    }
    if socket_acceptconn(&fd) == Ok(true) {
        let listener = Listener::inherited(UnixListener::from(fd));
        return listener
            .map(Socket::Listening)
            .map_err(|_| "this listener cannot be made not to wait");
    }
    match getpeername(&fd) {
        Err(Errno::NOTCONN) => {
            Err("this descriptor is a unix socket that neither listens nor is connected")
        }
        _ => Ok(Socket::Connected(UnixStream::from(fd))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixDatagram;

    use rustix::net::{SocketFlags, socket_with};

    use super::*;

    fn refusal(fd: impl IntoRawFd) -> String {
        let number = fd.into_raw_fd();
        let mut inherited = Inherited::take_over([number]).unwrap();
        let refusal = inherited
            .socket(number)
            .err()
            .expect("it is nothing to serve on");
        refusal.to_string()
    }

    #[test]
    fn what_is_nothing_to_serve_on_is_refused_by_name() {
        let stream = || {
            let (unix, none) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
            socket_with(unix, SocketType::STREAM, none, None).unwrap()
        };
        let packets = SocketType::SEQPACKET;
        let (packets, _other) =
            rustix::net::socketpair(AddressFamily::UNIX, packets, SocketFlags::CLOEXEC, None)
                .unwrap();
        for (told, words) in [
            (refusal(tempfile::tempfile().unwrap()), "not a socket"),
            (
                refusal(TcpListener::bind("127.0.0.1:0").unwrap()),
                "not a unix socket",
            ),
            (refusal(UnixDatagram::unbound().unwrap()), "SOCK_STREAM"),
            (refusal(packets), "SOCK_STREAM"),
            (refusal(stream()), "neither listens nor is connected"),
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn a_connection_is_served_even_if_its_other_end_is_closed() {
        for keep in [true, false] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let _kept = keep.then_some(theirs);
            let number = ours.into_raw_fd();
            let mut inherited = Inherited::take_over([number]).unwrap();
            let socket = inherited.socket(number).unwrap();
            assert!(matches!(socket, Socket::Connected(_)));
        }
    }

    #[test]
    fn a_number_is_taken_over_only_if_it_is_open() {
        for (number, words) in [
            (1, "the standard streams"),
            (-1, "the standard streams"),
            (1_000_000, "is not open"),
        ] {
            let told = Inherited::take_over([number]).unwrap_err().to_string();
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn a_path_whose_socket_was_passed_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let number = UnixListener::bind(&path).unwrap().into_raw_fd();
        let inherited = Inherited::take_over([number]).unwrap();
        assert!(inherited.listens_at(&path));
        assert!(!inherited.listens_at(&folder.path().join("b.sock")));
    }

    #[test]
    fn a_number_that_is_named_twice_is_used_once() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let number = ours.into_raw_fd();
        let mut inherited = Inherited::take_over([number, number]).unwrap();
        inherited.socket(number).unwrap();
        let told = inherited.socket(number).err().unwrap().to_string();
        assert!(told.contains("two disks"), "{told}");
    }
}
