//! What the libraries for system calls leave to `unsafe`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use vmm_sys_util::eventfd::EventFd;

/// A descriptor as crate `vhost` wants it: it sends eventfds to the server by this type.
pub(crate) fn event_fd(fd: OwnedFd) -> EventFd {
    let fd = fd.into_raw_fd();
    // SAFETY: the descriptor was owned, and has just been given up, so the new owner is the only one.
    unsafe { EventFd::from_raw_fd(fd) }
}

/// The process that listened on the other end of a connected socket. `None` where it lives in another
/// namespace of processes, where its number means nothing.
///
/// Not `rustix`, whose credentials cannot hold the process number 0, with which the kernel says that.
pub(crate) fn listener(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("three words");
    // SAFETY: `peer` is as long as `len` says, and any bytes are a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(peer.pid).ok().filter(|&pid| pid != 0))
}
