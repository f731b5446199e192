//! Why there is no socket to serve on.

use std::io;
use std::path::{Path, PathBuf};

use crate::log::chain;

/// The longest path of a unix socket that every program can connect to: the kernel's 108 bytes, the last of them zero.
pub const LONGEST_PATH: usize = 107;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It is one that was passed.
    #[error(
        "{0}: the service manager listens on this socket, and passes it to this process; leave the path \
         out, or name the socket by --fd-name instead"
    )]
    Passed(PathBuf),
    /// A process serves there already.
    #[error("{0}: a process listens on this socket already; end it, or choose another path")]
    Live(PathBuf),
    /// The path is taken by something that we must not remove.
    #[error(
        "{0}: there is something at this path that is not a socket; remove it, or choose another path"
    )]
    NotASocket(PathBuf),
    /// Another process is about to make or to remove one.
    #[error(
        "{path}: another process is starting or ending on this path, and holds {lock}; try again \
         once it is done"
    )]
    Busy { path: PathBuf, lock: PathBuf },
    /// It cannot be known whether another process is.
    #[error("{path}: cannot lock {lock}{}", remedy(.source))]
    Lock {
        path: PathBuf,
        lock: PathBuf,
        source: io::Error,
    },
    /// A folder on the way to it is closed.
    #[error(
        "{path}: it cannot be reached; give this user the right to enter the folder {folder} (`chmod +x`)"
    )]
    ClosedFolder {
        path: PathBuf,
        folder: PathBuf,
        source: io::Error,
    },
    /// Nobody could connect to it.
    #[error(
        "{path}: {} bytes are too long for the path of a unix socket, which has {} at most; choose a \
         shorter one",
        .path.as_os_str().len(), LONGEST_PATH
    )]
    TooLong { path: PathBuf },
    /// There is no such folder.
    #[error("{path}: its folder does not exist; {}", folder_remedy(.path))]
    NoDirectory { path: PathBuf },
    /// The system refused.
    #[error("{path}: cannot listen there; choose another path")]
    Listen { path: PathBuf, source: io::Error },
    /// Its rights cannot be set.
    #[error(
        "{path}: cannot give it {to}; only root gives sockets to others, and others only to \
         groups that they are in"
    )]
    Rights {
        path: PathBuf,
        to: String,
        source: io::Error,
    },
    /// The descriptor is nothing to serve on.
    #[error("--fd {fd}: {why}")]
    Fd { fd: i32, why: String },
}

/// What to do about a folder that is missing.
fn folder_remedy(path: &Path) -> &'static str {
    if path.starts_with("~") {
        pollux::disk::NO_TILDE
    } else {
        "make it first, or choose another path"
    }
}

/// What to do about a file that cannot be locked. The other errors of the system tell that themselves.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; make its folder writable, and remove the file if it is another user's"
        }
        _ => "; choose another path",
    }
}

impl SocketError {
    /// In the words of the option that named the path.
    pub fn of(self, option: &str) -> Box<dyn std::error::Error> {
        match self {
            Self::Fd { .. } => Box::new(self),
            error => format!("{option} {}", chain(&error)).into(),
        }
    }
}
