//! Answers as HTTP has them, and what of a request they are made of.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::control::state::State;
use crate::disks::One;
use crate::model::{Problem, Refused};

/// An answer.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What a body says, which is an object: serde takes a list for a structure as well. If it is none of this kind, `send`
/// says what to send.
pub fn object<T: DeserializeOwned>(body: &[u8], send: &str) -> Result<T, Refused> {
    let refused = |detail: &str| {
        Problem::bad_request(detail, format!("{send}; GET /openapi.json describes it"))
    };
    let plain = |error: serde_json::Error| refused(&error.to_string());
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(refused("the body is no JSON object").into());
    }
    let mut from = serde_json::Deserializer::from_slice(body);
    let object = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let field = error.path().to_string();
        if field == "." || error.inner().is_syntax() || error.inner().is_eof() {
            return plain(error.into_inner());
        }
        let detail = in_plain_words(error.inner().to_string());
        if detail.starts_with("unknown field") {
            return plain(error.into_inner()).of(&field);
        }
        let remedy = format!("{send}; GET /openapi.json says what `{field}` is");
        Problem::bad_request(detail, remedy).of(&field)
    })?;
    from.end().map_err(plain)?;
    Ok(object)
}

/// `detail` without Rust's names for whole numbers.
fn in_plain_words(detail: String) -> String {
    let types = [
        ("u16", u16::MAX.into()),
        ("u32", u32::MAX.into()),
        ("u64", u64::MAX),
        ("usize", u64::MAX),
    ];
    types.iter().fold(detail, |detail, (name, most)| {
        let number = format!("a whole number from 0 to {most}");
        detail.replace(&format!("expected {name}"), &format!("expected {number}"))
    })
}

pub const JSON: &str = "application/json";

pub fn json(body: &impl Serialize) -> Answer {
    respond(StatusCode::OK, JSON, written(body))
}

pub fn refuse(problem: &Problem) -> Answer {
    respond(
        problem.status(),
        "application/problem+json",
        written(problem),
    )
}

pub fn written(body: &impl Serialize) -> Bytes {
    let body = serde_json::to_vec(body).expect("plain structures can be written");
    body.into()
}

pub fn respond(status: StatusCode, content: &'static str, body: Bytes) -> Answer {
    with_headers(status, content, Full::new(body).boxed_unsync())
}

pub fn with_headers(
    status: StatusCode,
    content: &'static str,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

pub fn wrong_method(method: &Method, path: &str, remedy: &str, allowed: &'static str) -> Answer {
    let detail = format!("{path} does not take {method}");
    let mut refusal = refuse(&Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        detail,
        remedy,
    ));
    let allowed = HeaderValue::from_static(allowed);
    refusal.headers_mut().insert(ALLOW, allowed);
    refusal
}

/// The answer to a change that cannot be read whole.
pub fn too_large(most: usize) -> Answer {
    refuse(&Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body was cut off, or is longer than {most} bytes"),
        "send only what is to be changed",
    ))
}

/// The answer to a request with more descriptors than one.
pub fn too_many() -> Answer {
    let detail = "more than one descriptor came with this request";
    let problem = Problem::bad_request(detail, "send one image at a time");
    refuse(&problem.of("passed"))
}

pub fn named<'a>(state: &'a State, name: &str) -> Result<One<'a>, Refused> {
    state.disk(name).ok_or_else(|| unknown(name).into())
}

pub fn unknown(name: &str) -> Problem {
    let problem = Problem::not_found(
        format!("there is no disk `{name}`"),
        "`pollux disk list`, or GET /v1/disks, shows those that there are",
    );
    problem.of("name")
}
