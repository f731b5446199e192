//! Where a disk is served, as it was asked for.

use std::path::PathBuf;

use super::error::SocketError;
use super::inherited::Inherited;
use super::listener::{Socket, listen_at};
use super::rights::Rights;
use crate::paths::absolute;

/// Where frontends come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket of our own.
    Path {
        /// Where it is made.
        path: PathBuf,
        /// Which users may connect.
        rights: Rights,
    },
    /// A socket we inherited.
    Fd(i32),
    /// One that the service manager passed.
    Passed {
        /// What it calls it.
        name: String,
        /// Its number.
        fd: i32,
    },
}

impl Endpoint {
    /// Opens it: a socket of our own is made, any other is taken out of `inherited`.
    ///
    /// # Errors
    ///
    /// When there is no such socket, or none can be made.
    pub fn open(&self, inherited: &mut Inherited) -> Result<Socket, SocketError> {
        match self {
            Self::Path { path, .. } if inherited.listens_at(&absolute(path)) => {
                Err(SocketError::Passed(path.clone()))
            }
            Self::Path { path, rights } => listen_at(path, rights).map(Socket::Listening),
            Self::Fd(fd) | Self::Passed { fd, .. } => inherited.socket(*fd),
        }
    }

    /// Where it is, for programs in other folders. Asked before the working directory is out of reach.
    #[must_use]
    pub fn whole_name(&self) -> String {
        match self {
            Self::Path { path, .. } => absolute(path).display().to_string(),
            Self::Fd(_) | Self::Passed { .. } => self.name(),
        }
    }

    /// What the log calls it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Path { path, .. } => path.display().to_string(),
            Self::Fd(fd) => format!("fd {fd}"),
            Self::Passed { name, .. } => name.clone(),
        }
    }
}
