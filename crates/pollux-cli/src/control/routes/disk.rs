//! `PUT` and `DELETE /v1/disks/NAME`: disks that come and go while the daemon runs.

use std::os::fd::OwnedFd;

use hyper::StatusCode;

use super::answers::{named, object, unknown};
use crate::control::opener::{Outcome, PATIENCE};
use crate::control::state::State;
use crate::disks::NotRemoved;
use crate::model::{Disk, NAMES, NewDisk, Problem, Refused, is_name};

/// Adds a disk. The same request once more changes nothing; with other limits it changes these.
#[utoipa::path(
    put, path = "/v1/disks/{name}", params(("name" = String, Path, description = "The disk's name")),
    request_body = NewDisk,
    responses(
        (status = 200, body = Disk, description = "It was there"),
        (status = 201, body = Disk, description = "It is served"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "There is no such disk to serve"),
        (status = 403, body = Problem, content_type = "application/problem+json", description = "The daemon may not open this"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The name, image or socket is in use"),
        (status = 500, body = Problem, content_type = "application/problem+json", description = "The machine said no"),
        (status = 503, body = Problem, content_type = "application/problem+json", description = "Too many disks wait, or those before it are slow to open, or the daemon is ending")
    )
)]
pub async fn put(
    state: &State,
    name: &str,
    body: &[u8],
    image: Option<OwnedFd>,
) -> Result<(StatusCode, Disk), Refused> {
    let opener = state.opener().ok_or_else(|| {
        let detail = "this daemon takes no disks while it runs";
        let remedy = "start it with --disk-folder DIR, which names where their images may be";
        Problem::forbidden(detail, remedy)
    })?;
    if !is_name(name) {
        let detail = format!("a disk cannot be called {name:?}");
        return Err(Problem::bad_request(detail, NAMES).of("name").into());
    }
    let disk: NewDisk = object(body, "send {\"disk\": \"file:path=/srv/pollux/root.img\"}")?;
    let status = match opener.add(name, disk, image).await? {
        Outcome::Added => StatusCode::CREATED,
        Outcome::Limited | Outcome::Unchanged => StatusCode::OK,
    };
    Ok((status, named(state, name)?.disk()))
}

/// Removes a disk. While a frontend uses it, only by force: it is disconnected once its requests in flight have
/// ended.
#[utoipa::path(
    delete, path = "/v1/disks/{name}",
    params(
        ("name" = String, Path, description = "The disk's name"),
        ("force" = Option<bool>, Query, description = "Also one that a frontend uses")
    ),
    responses(
        (status = 202, description = "It ends, and is finishing what is in flight, or the list is being written"),
        (status = 204, description = "It has gone"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "There is no such parameter"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "A frontend uses it"),
        (status = 500, body = Problem, content_type = "application/problem+json", description = "The list could not be written")
    )
)]
pub async fn delete(state: &State, name: &str, query: Option<&str>) -> Result<StatusCode, Refused> {
    let force = match query {
        None | Some("" | "force=false") => false,
        Some("force=true") => true,
        Some(query) => {
            let problem = Problem::bad_request(
                format!("`{query}` is no parameter"),
                "write ?force=true, or none",
            );
            return Err(problem.of("force").into());
        }
    };
    let removed = state.all().remove(name, force);
    if let Err(why) = &removed
        && *why != NotRemoved::Unknown
    {
        return Err(refusal(*why, name).into());
    }
    let gone = async {
        // Also of one that is unknown: the list may not have been written when it was removed.
        if let Some(opener) = state.opener() {
            opener.keep().await?;
        }
        let removed = removed.map_err(|why| refusal(why, name))?;
        removed.ended().await;
        Ok::<_, Refused>(StatusCode::NO_CONTENT)
    };
    let gone = tokio::time::timeout(PATIENCE, gone).await;
    gone.unwrap_or(Ok(StatusCode::ACCEPTED))
}

fn refusal(why: NotRemoved, name: &str) -> Problem {
    let conflict = |detail, remedy: &str| Problem::conflict(detail, remedy).of("name");
    match why {
        NotRemoved::Unknown => unknown(name),
        NotRemoved::InUse => conflict(
            format!("a frontend uses the disk `{name}`"),
            "detach it there first, or disconnect it by ?force=true (`pollux disk remove --force`)",
        ),
        NotRemoved::Last => conflict(
            format!("`{name}` is the only disk of a daemon that takes no others"),
            "end the daemon, or start it with --disk-folder DIR",
        ),
    }
}
