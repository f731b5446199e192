//! `POST /v1/disks/NAME/resize`: a disk that grows while it is used.

use std::io;

use hyper::StatusCode;
use pollux::disk::ResizeError;
use pollux_threads::{Kind, spawn};
use tokio::sync::oneshot;

use super::answers::{object, unknown};
use crate::control::opener::PATIENCE;
use crate::control::state::State;
use crate::disks::{NotResized, Resizing};
use crate::log::chain;
use crate::model::{Disk, Problem, Refused, Resize};

/// What the disk is afterwards, unless it was removed meanwhile.
type Resized = Result<Option<Disk>, ResizeError>;

/// Makes a disk larger; without a size, reads how large its file or device has become.
#[utoipa::path(
    post, path = "/v1/disks/{name}/resize", params(("name" = String, Path, description = "The disk's name")),
    request_body = Option<Resize>,
    responses(
        (status = 200, body = Disk, description = "The disk as it is now"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "No disk has such a size"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "This disk keeps its size, or is being resized"),
        (status = 500, body = Problem, content_type = "application/problem+json", description = "The machine said no"),
        (status = 503, body = Problem, content_type = "application/problem+json", description = "It takes long, and goes on")
    )
)]
pub async fn post(state: &State, name: &str, body: &[u8]) -> Result<Disk, Refused> {
    let resizing = state.all().resizing(name);
    let resizing = resizing.map_err(|why| not_now(why, name))?;
    let asked = if body.is_empty() {
        Resize::default()
    } else {
        object(
            body,
            "send {\"bytes\": 21474836480}, or no body to read the size anew",
        )
        .map_err(|problem| problem.of("bytes"))?
    };
    if asked
        .bytes
        .is_some_and(|bytes| i64::try_from(bytes).is_err())
    {
        let problem = Problem::bad_request("no disk is that large", "ask for less than 2^63 bytes");
        return Err(problem.of("bytes").into());
    }
    let answered = start(name, resizing, asked.bytes).map_err(|error| machine(name, &error))?;
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(Ok(resized)) => resized
            .map_err(|error| refusal(&error))?
            .ok_or_else(|| unknown(name).into()),
        Ok(Err(lost)) => Err(machine(name, &lost).into()),
        Err(_) => {
            let detail = format!("the disk `{name}` is slow to be resized");
            let remedy = "it goes on: GET /v1/disks tells the size, and the log of a failure";
            Err(Problem::unavailable(detail, remedy).into())
        }
    }
}

/// Resizes it in a thread of its own, of which each disk has one at most.
fn start(
    name: &str,
    resizing: Resizing,
    bytes: Option<u64>,
) -> io::Result<oneshot::Receiver<Resized>> {
    let disk = name.to_owned();
    let (answer, answered) = oneshot::channel();
    spawn(Kind::Resizer, "resizer", move || {
        // The client that asked may not have waited.
        if let Err(Err(error)) = answer.send(resizing.resize(bytes)) {
            tracing::error!(disk, error = chain(&error), "the disk was not resized");
        }
    })?;
    Ok(answered)
}

fn not_now(why: NotResized, name: &str) -> Problem {
    match why {
        NotResized::Unknown => unknown(name),
        NotResized::Already => {
            let detail = format!("the disk `{name}` is being resized");
            Problem::conflict(detail, "ask again once that has ended").of("name")
        }
    }
}

fn machine(name: &str, error: &dyn std::error::Error) -> Problem {
    let detail = format!("no thread could resize the disk `{name}`: {error}");
    let remedy = "see to the machine's limits, then ask again";
    Problem::failed(detail, remedy)
}

fn refusal(error: &ResizeError) -> Problem {
    let (status, default) = match error {
        ResizeError::PartialBlock { .. } | ResizeError::NoSize { .. } => {
            (StatusCode::BAD_REQUEST, "")
        }
        ResizeError::Io { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "see to the file and its file system, then ask again",
        ),
        _ => (
            StatusCode::CONFLICT,
            "see \"Enlarging a disk\" in the page \"Running daemons\" of the book",
        ),
    };
    let mut problem = Problem::said(status, error);
    if problem.remedy.is_empty() {
        default.clone_into(&mut problem.remedy);
    }
    problem.of("bytes")
}
