//! Why a disk is not added, as HTTP says it.

use hyper::StatusCode;
use pollux::disk::OpenError;

use crate::log::chain;
use crate::model::Problem;
use crate::socket::SocketError;

pub fn not_opened(error: &(dyn std::error::Error + 'static)) -> Problem {
    let status = error
        .downcast_ref()
        .map_or(StatusCode::BAD_REQUEST, status_of);
    Problem::said(status, &chain(error)).of("disk")
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

pub fn not_listened(error: &SocketError) -> Problem {
    let status = match error {
        SocketError::Live(_) | SocketError::Busy { .. } | SocketError::NotASocket(_) => {
            StatusCode::CONFLICT
        }
        SocketError::Rights { .. }
        | SocketError::Lock { .. }
        | SocketError::ClosedFolder { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::said(status, &chain(error)).of("socket_path")
}
