//! `POST /v1/disks/NAME/resize`: a disk that grows while it is used.

use hyper::StatusCode;
use pollux::disk::ResizeError;

use super::{named, object};
use crate::control::model::{Disk, Resize};
use crate::control::problem::Problem;
use crate::control::state::State;
use crate::log::chain;

/// Makes a disk larger; without a size, reads how large its file or device has become.
#[utoipa::path(
    post, path = "/v1/disks/{name}/resize", params(("name" = String, Path, description = "The disk's name")),
    request_body = Option<Resize>,
    responses(
        (status = 200, body = Disk, description = "The disk as it is now"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "No disk has such a size"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "This disk keeps its size"),
        (status = 500, body = Problem, content_type = "application/problem+json", description = "The machine said no")
    )
)]
pub fn post(state: &State, name: &str, body: &[u8]) -> Result<Disk, Box<Problem>> {
    let served = named(state, name)?;
    let asked = if body.is_empty() {
        Resize::default()
    } else {
        object(body).map_err(|error| {
            let remedy = "send {\"bytes\": 21474836480}, or no body to read the size anew";
            bad(StatusCode::BAD_REQUEST, error.to_string(), remedy)
        })?
    };
    let resized = served.device.disk().resize(asked.bytes);
    resized.map_err(|error| Box::new(refusal(&error)))?;
    Ok(served.disk())
}

fn refusal(error: &ResizeError) -> Problem {
    let (status, default) = match error {
        ResizeError::PartialBlock { .. } => (StatusCode::BAD_REQUEST, ""),
        ResizeError::Io { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "see to the file and its file system, then ask again",
        ),
        _ => (StatusCode::CONFLICT, "see the book"),
    };
    let said = chain(error);
    let (detail, remedy) = said.split_once("; ").unwrap_or((&said, default));
    bad(status, detail, remedy)
}

fn bad(status: StatusCode, detail: impl Into<String>, remedy: &str) -> Problem {
    Problem::new(status, detail, remedy).of("bytes")
}
