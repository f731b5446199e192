//! Asks a daemon over its control socket.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::http::request::Builder;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::LONGEST_ANSWER;
use super::problem::Problem;

/// How long a daemon may take: longer than it lets others take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody is there.
    #[error("no server listens there; `pollux serve --control {0}` does")]
    Absent(String),
    /// It cannot be reached.
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    /// It does not speak as it should.
    #[error("this is no control socket of Pollux, or the daemon has ended")]
    Speech(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It takes too long.
    #[error("no answer in {} s", PATIENCE.as_secs())]
    Silence,
    /// It said no.
    #[error("{}; {}", .0.detail, .0.remedy)]
    Problem(Box<Problem>),
}

/// What `GET path` answers at `socket`.
pub fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, NoAnswer> {
    parsed(&text(socket, path)?)
}

/// As [`get`], of what is no JSON.
pub fn text(socket: &Path, path: &str) -> Result<Bytes, NoAnswer> {
    let request = Request::get(path).header("Host", "pollux");
    send(socket, request.body(Full::default()))
}

/// `DELETE path` at `socket`.
pub fn delete(socket: &Path, path: &str) -> Result<(), NoAnswer> {
    let request = Request::delete(path).header("Host", "pollux");
    send(socket, request.body(Full::default()))?;
    Ok(())
}

/// What `PUT path` with this body answers at `socket`.
pub fn put<T: DeserializeOwned>(socket: &Path, path: &str, body: &Value) -> Result<T, NoAnswer> {
    change(socket, Request::put(path), "application/json", body)
}

/// What `POST path` with this body answers at `socket`.
pub fn post<T: DeserializeOwned>(socket: &Path, path: &str, body: &Value) -> Result<T, NoAnswer> {
    change(socket, Request::post(path), "application/json", body)
}

/// What `PATCH path` with this body answers at `socket`.
pub fn patch<T: DeserializeOwned>(socket: &Path, path: &str, body: &Value) -> Result<T, NoAnswer> {
    change(
        socket,
        Request::patch(path),
        "application/merge-patch+json",
        body,
    )
}

fn change<T: DeserializeOwned>(
    socket: &Path,
    request: Builder,
    content: &str,
    body: &Value,
) -> Result<T, NoAnswer> {
    let request = request
        .header("Host", "pollux")
        .header("Content-Type", content);
    parsed(&send(socket, request.body(Full::from(body.to_string())))?)
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, NoAnswer> {
    serde_json::from_slice(body).map_err(|error| NoAnswer::Speech(error.into()))
}

fn send(
    socket: &Path,
    request: hyper::http::Result<Request<Full<Bytes>>>,
) -> Result<Bytes, NoAnswer> {
    let request = request.map_err(|error| NoAnswer::Speech(error.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(NoAnswer::Connect)?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(PATIENCE, ask(socket, request));
        let (is_ok, body) = asked.await.map_err(|_| NoAnswer::Silence)??;
        if is_ok {
            return Ok(body);
        }
        Err(NoAnswer::Problem(parsed(&body)?))
    })
}

async fn ask(socket: &Path, request: Request<Full<Bytes>>) -> Result<(bool, Bytes), NoAnswer> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let speech = |error: hyper::Error| NoAnswer::Speech(error.into());
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| match error.kind() {
            NotFound | ConnectionRefused => NoAnswer::Absent(socket.display().to_string()),
            _ => NoAnswer::Connect(error),
        })?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(speech)?;
    let driven = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(speech)?;
    let is_ok = answer.status().is_success();
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect();
    let body = body.await.map_err(NoAnswer::Speech)?.to_bytes();
    driven.abort();
    Ok((is_ok, body))
}
