//! What the libraries for system calls leave to `unsafe`.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use vmm_sys_util::eventfd::EventFd;

/// A descriptor as crate `vhost` wants it: it sends eventfds to the server by this type.
pub(crate) fn event_fd(fd: OwnedFd) -> EventFd {
    let fd = fd.into_raw_fd();
    // SAFETY: the descriptor was owned, and has just been given up, so the new owner is the only one.
    unsafe { EventFd::from_raw_fd(fd) }
}
