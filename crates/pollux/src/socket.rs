//! The socket on which frontends connect.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, chmod, chownat, fchmod, open};
use rustix::io::{Errno, fcntl_getfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::export::Endpoint;
use crate::rights::Rights;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody serves there already.
    #[error(
        "--socket-path {0}: another process is serving on this socket; end it, or choose another path"
    )]
    Live(PathBuf),
    /// The path is taken by something that we must not remove.
    #[error(
        "--socket-path {0}: there is something at this path that is not a socket; remove it, or choose another path"
    )]
    NotASocket(PathBuf),
    /// There is no such directory.
    #[error(
        "--socket-path {0}: its directory does not exist; make it first, or choose another path"
    )]
    NoDirectory(PathBuf),
    /// The system refused.
    #[error("--socket-path {path}: cannot listen there")]
    Listen {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Its rights cannot be set.
    #[error(
        "--socket-path {path}: cannot give it {to}; only root gives sockets to others, and others only to \
         groups that they are in"
    )]
    Rights {
        /// The path.
        path: PathBuf,
        /// What was asked for.
        to: String,
        /// What the system said.
        source: io::Error,
    },
    /// The descriptor is nothing to serve on.
    #[error("--fd {fd}: {why}")]
    Fd {
        /// Its number.
        fd: i32,
        /// What it is instead.
        why: String,
    },
}

/// Where frontends come from.
pub enum Socket {
    /// One after the other. The path is removed when it is dropped, if the socket is our own.
    Listening(UnixListener, Option<OwnPath>),
    /// One only.
    Connected(UnixStream),
}

/// Removes a socket's path when it is dropped.
pub struct OwnPath(PathBuf);

impl Drop for OwnPath {
    fn drop(&mut self) {
        // Somebody may have removed it before; that is no fault of ours.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    pub fn open(endpoint: &Endpoint) -> Result<Self, SocketError> {
        match endpoint {
            Endpoint::Path { path, rights } => listen_at(path, rights),
            Endpoint::Fd(fd) | Endpoint::Passed { fd, .. } => inherit(*fd),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listening(listener, _) => listener.as_fd(),
            Self::Connected(stream) => stream.as_fd(),
        }
    }
}

/// Makes a socket at `path`. Nobody can connect before `listen`, and by then the rights are as they shall be:
/// whatever the umask, they are never wider.
fn listen_at(path: &Path, rights: &Rights) -> Result<Socket, SocketError> {
    remove_stale(path)?;
    let failed = |error: Errno| SocketError::Listen {
        path: path.to_owned(),
        source: error.into(),
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    // Only what is asked for in the end, and less by the umask.
    fchmod(&socket, rights.mode).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    bind(&socket, &address).map_err(|error| match error {
        Errno::NOENT => SocketError::NoDirectory(path.to_owned()),
        error => failed(error),
    })?;
    let own = OwnPath(path.to_owned());
    grant(path, rights)?;
    listen(&socket, 16).map_err(failed)?;
    Ok(Socket::Listening(UnixListener::from(socket), Some(own)))
}

/// Gives the socket at `path` its owner, group and permissions.
fn grant(path: &Path, rights: &Rights) -> Result<(), SocketError> {
    let failed = |error: Errno| SocketError::Rights {
        path: path.to_owned(),
        to: told(rights),
        source: error.into(),
    };
    // It is held while it is changed, and not looked for again: whoever can write its folder could have put
    // a link to something else in its place.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = open(path, flags, Mode::empty()).map_err(failed)?;
    if rights.owner.is_some() || rights.group.is_some() {
        chownat(
            &socket,
            c"",
            rights.owner,
            rights.group,
            AtFlags::EMPTY_PATH,
        )
        .map_err(failed)?;
    }
    let held = format!("/proc/self/fd/{}", socket.as_raw_fd());
    match chmod(held, rights.mode) {
        // Without /proc, by its name.
        Err(Errno::NOENT) => chmod(path, rights.mode).map_err(failed),
        result => result.map_err(failed),
    }
}

fn told(rights: &Rights) -> String {
    let mode = format!("mode {:04o}", rights.mode.as_raw_mode());
    let user = rights.owner.map(|user| format!("user {}", user.as_raw()));
    let group = rights
        .group
        .map(|group| format!("group {}", group.as_raw()));
    let parts: Vec<_> = [Some(mode), user, group].into_iter().flatten().collect();
    parts.join(", ")
}

/// Removes a socket at `path` on which nobody listens any more.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    let failed = |source| SocketError::Listen {
        path: path.to_owned(),
        source,
    };
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing a socket on which nobody listens");
            std::fs::remove_file(path).map_err(failed)
        }
        // A full backlog means a listener, too.
        Ok(_) => Err(SocketError::Live(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Live(path.to_owned()))
        }
        Err(error) => Err(failed(error)),
    }
}

fn inherit(number: i32) -> Result<Socket, SocketError> {
    let bad = |why: &str| SocketError::Fd {
        fd: number,
        why: why.to_owned(),
    };
    if number <= 2 {
        return Err(bad(
            "pass a socket as descriptor 3 or higher; 0 to 2 are the standard streams",
        ));
    }
    // SAFETY: only asked whether it is open, which is right to ask of any number.
    let open = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) });
    if open.is_err() {
        return Err(bad(
            "this descriptor is not open; the parent process has to pass it on",
        ));
    }
    // SAFETY: it is open, and it was passed to us to own: nothing else in this process knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let domain = socket_domain(&fd).map_err(|_| bad("this descriptor is not a socket"))?;
    if domain != AddressFamily::UNIX {
        return Err(bad("this descriptor is a socket, but not a unix socket"));
    }
    Ok(if socket_acceptconn(&fd).unwrap_or(false) {
        Socket::Listening(UnixListener::from(fd), None)
    } else {
        Socket::Connected(UnixStream::from(fd))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.sock");
        let endpoint = Endpoint::Path {
            path: path.clone(),
            rights: Rights::new(Some("0640"), None, None).unwrap(),
        };
        drop(UnixListener::bind(&path).unwrap());
        let first = Socket::open(&endpoint).unwrap();
        assert_eq!(
            path.symlink_metadata().unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(matches!(Socket::open(&endpoint), Err(SocketError::Live(_))));
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let endpoint = Endpoint::Path {
            path: file.path().to_owned(),
            rights: Rights::default(),
        };
        assert!(matches!(
            Socket::open(&endpoint),
            Err(SocketError::NotASocket(_))
        ));
        assert!(file.path().exists());
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_refused() {
        use std::os::fd::IntoRawFd;
        let file = tempfile::tempfile().unwrap().into_raw_fd();
        assert!(matches!(
            Socket::open(&Endpoint::Fd(file)),
            Err(SocketError::Fd { .. })
        ));
        assert!(matches!(
            Socket::open(&Endpoint::Fd(1)),
            Err(SocketError::Fd { .. })
        ));
        assert!(matches!(
            Socket::open(&Endpoint::Fd(1_000_000)),
            Err(SocketError::Fd { .. })
        ));
    }
}
