//! Pipes of a frontend's.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Reads and writes of this pipe do not wait, unless the frontend has them wait: the flag is its as well, and so is the
/// pipe's lock, for which there is no flag. So a pipe is taken only where it can hold no other's disk
/// ([`notifier`](crate::session::notifier)).
///
/// # Errors
///
/// What `fcntl` says.
pub fn non_blocking(pipe: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}
