//! A socket that listens, and one that is connected.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, chmod, chownat, fchmod, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::claim::{Claim, OwnPath};
use super::error::{LONGEST_PATH, SocketError};
use super::rights::Rights;

/// Where frontends come from.
pub enum Socket {
    /// One after the other.
    Listening(Listener),
    /// One only.
    Connected(UnixStream),
}

/// A socket that listens. It may be shared with other processes, which take a connection between `poll` and `accept`
/// here: so `accept` never waits.
pub struct Listener {
    /// Goes before the socket does: see there.
    _own: Option<OwnPath>,
    socket: UnixListener,
}

impl Listener {
    /// One that another process has made. If they share it, that one does not wait in `accept` any more, either.
    pub fn inherited(socket: UnixListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { _own: None, socket })
    }

    /// The next frontend, if there is one.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Makes a socket at `path`. Nobody can connect before `listen`, and by then the rights are as they shall be:
/// whatever the umask, they are never wider.
pub fn listen_at(path: &Path, rights: &Rights) -> Result<Listener, SocketError> {
    if path.as_os_str().len() > LONGEST_PATH {
        let path = path.to_owned();
        return Err(SocketError::TooLong { path });
    }
    let claim = Claim::of(path)?;
    let failed = |error: Errno| SocketError::Listen {
        path: path.to_owned(),
        source: error.into(),
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(failed)?;
    // Only what is asked for in the end, and less by the umask.
    fchmod(&socket, rights.mode).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    bind(&socket, &address).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => SocketError::NoDirectory {
            path: path.to_owned(),
        },
        error => failed(error),
    })?;
    let mut own = claim.bound();
    grant(path, rights)?;
    listen(&socket, 16).map_err(failed)?;
    own.release();
    Ok(Listener {
        _own: Some(own),
        socket: socket.into(),
    })
}

/// Gives the socket at `path` its owner, group and permissions.
fn grant(path: &Path, rights: &Rights) -> Result<(), SocketError> {
    let failed = |error: Errno| SocketError::Rights {
        path: path.to_owned(),
        to: told(rights),
        source: error.into(),
    };
    // It is held while it is changed, and not searched for again: a user that can write its folder could have put
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.sock");
        let rights = Rights::new(Some("0640"), None, None).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let first = listen_at(&path, &rights).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let second = listen_at(&path, &rights);
        assert!(matches!(second, Err(SocketError::Live(_))));
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_is_told_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().as_os_str().len() + 1;
        let open = |len: usize| {
            let path = dir.path().join("x".repeat(len - there));
            listen_at(&path, &Rights::default())
        };
        assert!(open(107).is_ok());
        let told = open(108).err().unwrap().to_string();
        assert!(told.contains("108 bytes are too long"), "{told}");
        assert!(told.contains("107 at most"), "{told}");
    }

    #[test]
    fn a_file_in_the_way_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let told = listen_at(file.path(), &Rights::default());
        assert!(matches!(told, Err(SocketError::NotASocket(_))));
        assert!(file.path().exists());
    }
}
