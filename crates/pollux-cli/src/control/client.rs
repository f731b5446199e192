//! Asks a daemon over its control socket.

use std::io::{self, ErrorKind::ConnectionRefused, ErrorKind::NotFound};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use os_display::Quotable;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::LONGEST_ANSWER;
use super::passing::Passing;
use super::sockets::{Sockets, find};
use crate::log::chain;
use crate::model::Refused;
use crate::paths::missing_right;

/// How long a daemon may take: longer than it lets others take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to tell what it knows.
const SHORT: Duration = Duration::from_secs(5);

/// A daemon did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// There is nothing.
    #[error("there is no control socket; start a daemon with `--control {0}`, or correct the path")]
    Missing(String),
    /// There is something else.
    #[error(
        "it is no socket; give the control socket of a daemon, or a folder with those of several"
    )]
    NotASocket,
    /// Nobody is there any more.
    #[error("no server listens there; `pollux serve --control {0}` does")]
    Absent(String),
    /// It cannot be reached; the right that is missing, if one is.
    #[error("cannot connect{0}")]
    Connect(String, #[source] std::io::Error),
    /// It does not speak as it should.
    #[error(
        "this is no control socket of Pollux, or the daemon has ended; give the path of its --control"
    )]
    Speech(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It takes too long.
    #[error("no answer in {} s; see whether the daemon is stopped, or give the path of its --control", .0.as_secs())]
    Silence(Duration),
    /// It said no.
    #[error("{0}")]
    Problem(Refused),
}

/// What `GET path` answers at `socket`.
pub fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, NoAnswer> {
    let (_, body) = answer(socket, bare(Request::get(path)), None, SHORT)?;
    read(&body)
}

/// What daemons answer to `ask`: the one at `asked`, or all whose sockets are in that folder, at once. Of the others in a
/// folder, why they did not.
pub fn each<T: Send>(
    asked: Option<&Path>,
    ask: impl Fn(&Path) -> Result<T, NoAnswer> + Sync,
) -> Result<(Vec<T>, Vec<String>), String> {
    let (mut answers, mut failed) = (Vec::new(), Vec::new());
    match find(asked)? {
        Sockets::One(path) => answers.push(ask(&path).map_err(|error| named(&path, &error))?),
        Sockets::Folder(folder, sockets) => {
            for (path, answer) in sockets.iter().zip(all(&sockets, &ask)) {
                match answer {
                    Ok(answer) => answers.push(answer),
                    // It was killed, and has left its socket.
                    Err(NoAnswer::Missing(_) | NoAnswer::Absent(_)) => {
                        tracing::info!(path = %path.display(), "no server listens there");
                    }
                    Err(error) => failed.push(named(path, &error)),
                }
            }
            if answers.is_empty() && failed.is_empty() {
                return Err(Sockets::none_in(&folder));
            }
        }
    }
    Ok((answers, failed))
}

fn all<T: Send>(
    sockets: &[PathBuf],
    ask: &(impl Fn(&Path) -> Result<T, NoAnswer> + Sync),
) -> Vec<Result<T, NoAnswer>> {
    thread::scope(|scope| {
        let asked = sockets.iter().map(|path| scope.spawn(move || ask(path)));
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(ScopedJoinHandle::join);
        answers
            .map(|answer| answer.expect("asking does not panic"))
            .collect()
    })
}

/// What a daemon did not do, and which.
pub fn named(control: &Path, error: &NoAnswer) -> String {
    let at = match error {
        NoAnswer::Problem(_) => "the daemon at",
        _ => "--control",
    };
    format!("{at} {}: {}", control.display(), chain(error))
}

/// As [`get`], of what is no JSON.
pub fn text(socket: &Path, path: &str) -> Result<Bytes, NoAnswer> {
    send(socket, bare(Request::get(path)), None)
}

/// What `POST path` with this body answers at `socket`.
pub fn post<T: DeserializeOwned>(socket: &Path, path: &str, body: &Value) -> Result<T, NoAnswer> {
    let request = with(Request::post(path), "application/json", body);
    read(&send(socket, request, None)?)
}

/// What `PATCH path` with this body answers at `socket`.
pub fn patch<T: DeserializeOwned>(socket: &Path, path: &str, body: &Value) -> Result<T, NoAnswer> {
    let request = with(Request::patch(path), "application/merge-patch+json", body);
    read(&send(socket, request, None)?)
}

/// What `PUT path` with this body answers at `socket`. The descriptor goes with it.
pub fn put<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body: &Value,
    passed: Option<OwnedFd>,
) -> Result<T, NoAnswer> {
    let request = with(Request::put(path), "application/json", body);
    read(&send(socket, request, passed)?)
}

/// Has `path` removed at `socket`. Has it gone by now?
pub fn delete(socket: &Path, path: &str) -> Result<bool, NoAnswer> {
    let (status, _) = answer(socket, bare(Request::delete(path)), None, PATIENCE)?;
    Ok(status != StatusCode::ACCEPTED)
}

type Asked = hyper::http::Result<Request<Full<Bytes>>>;

fn bare(request: Builder) -> Asked {
    request.header("Host", "pollux").body(Full::default())
}

fn with(request: Builder, content: &str, body: &Value) -> Asked {
    let request = request.header("Host", "pollux");
    let request = request.header("Content-Type", content);
    request.body(Full::from(body.to_string()))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, NoAnswer> {
    serde_json::from_slice(body).map_err(|error| NoAnswer::Speech(error.into()))
}

/// The body of the answer.
fn send(socket: &Path, request: Asked, passed: Option<OwnedFd>) -> Result<Bytes, NoAnswer> {
    answer(socket, request, passed, PATIENCE).map(|(_, body)| body)
}

fn answer(
    socket: &Path,
    request: Asked,
    passed: Option<OwnedFd>,
    patience: Duration,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let request = request.map_err(|error| NoAnswer::Speech(error.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| NoAnswer::Connect(String::new(), error))?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(patience, ask(socket, request, passed));
        let (status, body) = asked.await.map_err(|_| NoAnswer::Silence(patience))??;
        if status.is_success() {
            return Ok((status, body));
        }
        Err(NoAnswer::Problem(read(&body)?))
    })
}

async fn ask(
    socket: &Path,
    request: Request<Full<Bytes>>,
    passed: Option<OwnedFd>,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let speech = |error: hyper::Error| NoAnswer::Speech(error.into());
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| unreached(socket, error))?;
    let (mut sender, connection) = handshake(TokioIo::new(Passing::sending(stream, passed)))
        .await
        .map_err(speech)?;
    let driven = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(speech)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect();
    let body = body.await.map_err(NoAnswer::Speech)?.to_bytes();
    driven.abort();
    Ok((status, body))
}

fn unreached(socket: &Path, error: io::Error) -> NoAnswer {
    let there = || socket.maybe_quote().to_string();
    match error.kind() {
        NotFound => NoAnswer::Missing(there()),
        ConnectionRefused if !is_socket(socket) => NoAnswer::NotASocket,
        ConnectionRefused => NoAnswer::Absent(there()),
        _ => {
            let right = "write to the socket, or ask as its owner or as root";
            NoAnswer::Connect(missing_right(socket, &error, right), error)
        }
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Problem;

    #[test]
    fn a_refusal_names_the_daemon_and_a_missing_daemon_the_option() {
        let control = Path::new("/run/a.control");
        let refused = Problem::new(StatusCode::CONFLICT, "it is in use", "end that");
        let told = named(control, &NoAnswer::Problem(refused.into()));
        assert_eq!(told, "the daemon at /run/a.control: it is in use; end that");
        let told = named(control, &NoAnswer::Silence(SHORT));
        assert!(told.starts_with("--control /run/a.control: "), "{told}");
    }

    #[test]
    fn where_nobody_answers_it_is_said_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("left")).unwrap());
        for (name, words) in [
            ("none", "there is no control socket; start a daemon with"),
            ("file", "it is no socket"),
            ("left", "no server listens there"),
        ] {
            let error = text(&at(name), "/v1/disks").unwrap_err();
            assert!(error.to_string().contains(words), "{name}: {error}");
        }
    }
}
