//! Why a disk is not added, as HTTP says it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hyper::StatusCode;
use pollux::disk::{OpenError, Spec};

use crate::control::folders::reached;
use crate::disks::{Disks, Served};
use crate::model::Problem;
use crate::socket::SocketError;

pub fn not_opened(error: &(dyn std::error::Error + 'static), disks: &Disks) -> Problem {
    if let Some(OpenError::InUse { path, .. }) = error.downcast_ref()
        && let Some(name) = user(path, disks)
    {
        let path = path.display();
        let detail = format!("{path} is in use: the disk `{name}` of this daemon has it");
        let remedy = format!("`pollux disk remove {name}` releases it");
        return Problem::conflict(detail, remedy).of("disk");
    }
    let status = error
        .downcast_ref()
        .map_or(StatusCode::BAD_REQUEST, status_of);
    let mut problem = Problem::said(status, error);
    if status.is_server_error() && problem.remedy.is_empty() {
        // The system's own errors do not say it.
        "see to the path and the storage below it, and ask again".clone_into(&mut problem.remedy);
    }
    problem.of("disk")
}

/// The disk that has the image at `path`: from inside the sandbox the kernel names no process that has locked it.
fn user(path: &Path, disks: &Disks) -> Option<String> {
    let wanted = identity(path)?;
    let of = |disk: &Served| (disk.name.clone(), disk.spec.clone());
    // Without the lock: to look at a file may take a while.
    let served: Vec<_> = disks.list().iter().map(of).collect();
    let mut served = served.into_iter();
    let has = |spec: &Spec| reached(spec).any(|path| identity(path) == Some(wanted));
    served.find(|(_, spec)| has(spec)).map(|(name, _)| name)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

fn status_of(error: &OpenError) -> StatusCode {
    match error {
        OpenError::InUse { .. } | OpenError::Busy { .. } | OpenError::Looped { .. } => {
            StatusCode::CONFLICT
        }
        OpenError::Outside { .. }
        | OpenError::Permission { .. }
        | OpenError::ClosedFolder { .. } => StatusCode::FORBIDDEN,
        OpenError::Io { .. } | OpenError::NoMemory { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        OpenError::Backing { source, .. } => status_of(source),
        _ => StatusCode::BAD_REQUEST,
    }
}

pub fn not_listened(error: &SocketError, disks: &Disks) -> Problem {
    if let SocketError::Live(path) = error
        && let socket = path.to_string_lossy()
        && let Some(disk) = disks.list().iter().find(|disk| disk.socket == socket)
    {
        let detail = format!(
            "{socket}: the disk `{}` of this daemon listens there",
            disk.name
        );
        return Problem::conflict(detail, "choose another path").of("socket_path");
    }
    let status = match error {
        SocketError::Live(_) | SocketError::Busy { .. } | SocketError::NotASocket(_) => {
            StatusCode::CONFLICT
        }
        SocketError::Rights { .. }
        | SocketError::Lock { .. }
        | SocketError::ClosedFolder { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::said(status, error).of("socket_path")
}
