//! Connecting to the socket of a server.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_disk::closed_folder;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::{ConnectError, Lost};

/// Connects to the server that listens on `path`.
///
/// A server with a full queue of clients is waited for no longer than `patience`: connecting to a Unix
/// socket waits as long as sending may.
pub(crate) fn dial(path: &Path, patience: Duration) -> Result<UnixStream, ConnectError> {
    let system = |error: Errno| ConnectError::System {
        path: path.to_owned(),
        source: error.into(),
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(system)?;
    // Patience beyond what the kernel can count is a wait without end.
    let waits_for_ever = || set_socket_timeout(&socket, Timeout::Send, None);
    let address = SocketAddrUnix::new(path).map_err(|error| failure(path, patience, error))?;
    let started = Instant::now();
    let mut left = patience;
    loop {
        set_socket_timeout(&socket, Timeout::Send, Some(left))
            .or_else(|_| waits_for_ever())
            .map_err(system)?;
        let connected = connect(&socket, &address);
        left = patience.saturating_sub(started.elapsed());
        let ended = match connected {
            // A signal has ended the wait, and nothing was done.
            Err(Errno::INTR) if left.is_zero() => Err(Errno::AGAIN),
            Err(Errno::INTR) => continue,
            ended => ended,
        };
        break ended.map_err(|error| failure(path, patience, error))?;
    }
    waits_for_ever().map_err(system)?;
    Ok(UnixStream::from(socket))
}

fn failure(path: &Path, patience: Duration, error: Errno) -> ConnectError {
    let path = path.to_owned();
    match error {
        Errno::NOENT => ConnectError::Missing { path },
        Errno::NAMETOOLONG => ConnectError::TooLong { path },
        Errno::ACCESS | Errno::PERM => match closed_folder(&path).map(Path::to_owned) {
            Some(folder) => ConnectError::ClosedFolder { path, folder },
            None => ConnectError::Permission { path },
        },
        Errno::CONNREFUSED if is_other_than_a_socket(&path) => ConnectError::NotASocket { path },
        Errno::CONNREFUSED => ConnectError::Refused { path },
        Errno::AGAIN => ConnectError::Lost {
            path,
            source: Lost::Silent {
                message: "the connection",
                patience,
            },
        },
        other => ConnectError::Connect {
            path,
            source: io::Error::from(other),
        },
    }
}

/// The kernel refuses to connect to a file in the same words as to a socket without a listener.
fn is_other_than_a_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.file_type().is_socket())
}

#[cfg(test)]
mod tests;
