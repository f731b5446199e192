//! What can be asked, and how it is answered. The description for others is made from here: `/openapi.json`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use utoipa::OpenApi;

use super::metrics;
use super::state::State;
use crate::disks::Served;
use crate::model::{Disk, DiskStats, Disks, Event, Health, Problem, Workers};
use answers::{JSON, json, named, refuse, respond, with_headers, written, wrong_method};

mod answers;
mod disk;
mod events;
mod limit;
mod resize;
mod trace;

pub use answers::{Answer, too_large, too_many};

/// The interface, described.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Pollux",
        description = "The disks of one `pollux serve`, over its control socket."
    ),
    paths(
        disks,
        disk,
        disk::put,
        disk::delete,
        events,
        limit::patch,
        resize::post,
        trace::put,
        trace::get,
        trace::delete,
        trace::jsonl,
        trace::blkparse,
        stats,
        workers,
        health,
        metrics,
        description
    )
)]
struct Description;

/// Which requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Everything,
    /// Those for metrics.
    Metrics,
}

/// A request that may change something.
pub struct Change<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub body: &'a [u8],
    /// A descriptor that came with it.
    pub image: Option<OwnedFd>,
}

/// Answers a request that changes something, whose body is needed for that. `None`: it changes nothing.
pub async fn change(state: &State, reach: Reach, asked: Change<'_>) -> Option<Answer> {
    if reach != Reach::Everything {
        return None;
    }
    let Change { path, body, .. } = asked;
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let changed = match (asked.method.as_str(), &parts[..]) {
        ("POST", ["v1", "disks", name, "resize"]) => resize::post(state, name, body)
            .await
            .map(|disk| json(&disk)),
        ("PATCH", ["v1", "disks", name]) => limit::patch(state, name, body)
            .await
            .map(|disk| json(&disk)),
        ("PUT", ["v1", "disks", name, "trace"]) => {
            trace::put(state, name, body).map(|trace| json(&trace))
        }
        ("DELETE", ["v1", "disks", name, "trace"]) => trace::delete(state, name),
        ("PUT", ["v1", "disks", name]) => disk::put(state, name, body, asked.image)
            .await
            .map(|(status, disk)| respond(status, JSON, written(&disk))),
        ("DELETE", ["v1", "disks", name]) => disk::delete(state, name, asked.query)
            .await
            .map(|status| respond(status, JSON, Bytes::new())),
        _ => return None,
    };
    Some(changed.unwrap_or_else(|problem| refuse(&problem)))
}

/// Answers a request that changes nothing, whatever its body is.
pub fn answer<B>(state: &Arc<State>, reach: Reach, request: &Request<B>) -> Answer {
    let (method, path) = (request.method(), request.uri().path());
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let found = match parts[..] {
        ["metrics"] => Ok(metrics(state, request)),
        _ if reach == Reach::Metrics => Err(Problem::not_found(
            format!("there is no {path}"),
            "GET /metrics is all that this address answers",
        )
        .into()),
        ["v1", "disks"] => Ok(json(&disks(state))),
        ["v1", "disks", name] => named(state, name).map(|served| json(&disk(&served))),
        ["v1", "disks", name, "trace"] => trace::get(state, name).map(|trace| json(&trace)),
        ["v1", "disks", name, "trace", "jsonl"] => trace::jsonl(state, name),
        ["v1", "disks", name, "trace", "blkparse"] => trace::blkparse(state, name),
        ["v1", "disks", name, "stats"] => named(state, name).map(|served| json(&stats(&served))),
        ["v1", "workers"] => Ok(json(&workers(state))),
        ["v1", "health"] => Ok(json(&health(state))),
        ["v1", "events"] => Ok(events(state)),
        ["openapi.json"] => Ok(description()),
        ["v1", "disks", _, "resize"] => return wrong_method(method, path, "use POST", "POST"),
        _ => Err(Problem::not_found(
            format!("there is no {path}"),
            "GET /openapi.json tells what there is",
        )
        .into()),
    };
    match found {
        // It was made for nothing, which is cheap, and tells a wrong path from a wrong method.
        Ok(_) if ![Method::GET, Method::HEAD].contains(method) => {
            let (remedy, allowed) = match parts[..] {
                ["v1", "disks", _] if reach == Reach::Everything => (
                    "use GET, PUT, PATCH or DELETE",
                    "GET, HEAD, PUT, PATCH, DELETE",
                ),
                ["v1", "disks", _, "trace"] if reach == Reach::Everything => (
                    "use PUT to start a trace, GET to look at it, DELETE to end it",
                    "GET, HEAD, PUT, DELETE",
                ),
                _ => ("use GET", "GET, HEAD"),
            };
            wrong_method(method, path, remedy, allowed)
        }
        Ok(answer) => answer,
        Err(problem) => refuse(&problem),
    }
}

/// All disks.
#[utoipa::path(get, path = "/v1/disks", responses((status = 200, body = Disks)))]
fn disks(state: &State) -> Disks {
    Disks {
        disks: state.disks().iter().map(Served::disk).collect(),
    }
}

/// One disk.
#[utoipa::path(
    get, path = "/v1/disks/{name}", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 200, body = Disk),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk")
    )
)]
fn disk(served: &Served) -> Disk {
    served.disk()
}

/// What a disk has counted.
#[utoipa::path(
    get, path = "/v1/disks/{name}/stats", params(("name" = String, Path, description = "The disk's name")),
    responses(
        (status = 200, body = DiskStats),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such disk")
    )
)]
fn stats(served: &Served) -> DiskStats {
    served.stats()
}

/// The threads that serve queues.
#[utoipa::path(get, path = "/v1/workers", responses((status = 200, body = Workers)))]
fn workers(state: &State) -> Workers {
    Workers {
        workers: state.workers(),
    }
}

/// Is the daemon well?
#[utoipa::path(get, path = "/v1/health", responses((status = 200, body = Health)))]
fn health(state: &State) -> Health {
    state.health()
}

/// What happens, as server-sent events, for as long as the client listens. Each has the kind as its `event`, and as its
/// `data` an `Event`.
#[utoipa::path(
    get, path = "/v1/events",
    responses((status = 200, body = Event, content_type = "text/event-stream"))
)]
fn events(state: &Arc<State>) -> Answer {
    let body = events::Events::new(Arc::clone(state));
    with_headers(StatusCode::OK, "text/event-stream", body.boxed_unsync())
}

/// All counters, for Prometheus: `OpenMetrics` for clients that accept it, else Prometheus' older text format.
#[utoipa::path(
    get, path = "/metrics",
    responses((
        status = 200,
        content(
            (String = "application/openmetrics-text; version=1.0.0; charset=utf-8"),
            (String = "text/plain; version=0.0.4; charset=utf-8")
        )
    ))
)]
fn metrics<B>(state: &State, request: &Request<B>) -> Answer {
    let accepted = request.headers().get(ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    let (content, text) = metrics::scrape(state, accepted.unwrap_or_default());
    respond(StatusCode::OK, content, text.into())
}

/// This description, as `OpenAPI` 3.1.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Object)))]
fn description() -> Answer {
    json(&Description::openapi())
}

#[cfg(test)]
mod tests;
