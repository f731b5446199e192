//! The process at the other end of a socket, as the kernel knows it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process that connected a socket, or that listened on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; `None` where it lives in another namespace of processes, in which it has none here.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Peer {
    /// Of a connected socket: `SO_PEERCRED`.
    ///
    /// Not `rustix`, whose credentials cannot hold the process number 0, with which the kernel says that there is none.
    ///
    /// # Errors
    ///
    /// Where it is not connected.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("three words");
        // SAFETY: `peer` is as long as `len` says, and any bytes are a valid `ucred`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            pid: u32::try_from(peer.pid).ok().filter(|&pid| pid != 0),
            uid: peer.uid,
            gid: peer.gid,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pair_has_its_maker_at_both_ends() {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(Peer::of(&other).unwrap(), peer);
    }

    #[test]
    fn what_is_no_socket_has_none() {
        let file = tempfile::tempfile().unwrap();
        assert!(Peer::of(&file).is_err());
    }
}
