//! Errors as RFC 9457 wants them: what is wrong, in which field, and what to do about it.

use std::error::Error;
use std::fmt;
use std::iter::successors;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::BadLimit;

/// A request that is refused.
pub type Refused = Box<Problem>;

/// Why there is no answer (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// What kind of problem: `about:blank`, as the status says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// What of the request is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do instead; empty where `detail` tells.
    pub remedy: String,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            remedy: remedy.into(),
        }
    }

    pub fn bad_request(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail, remedy)
    }

    pub fn forbidden(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail, remedy)
    }

    pub fn not_found(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail, remedy)
    }

    pub fn conflict(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail, remedy)
    }

    /// The machine said no.
    pub fn failed(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail, remedy)
    }

    /// Not now.
    pub fn unavailable(detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail, remedy)
    }

    /// As an error and its causes say it: what is wrong, and after a semicolon what to do.
    pub fn said(status: StatusCode, error: &dyn Error) -> Self {
        let all = successors(Some(error), |&error| error.source());
        let (mut told, mut remedies) = (vec![], vec![]);
        for error in all {
            let said = error.to_string();
            let (what, remedy) = said.split_once("; ").unzip();
            told.push(what.unwrap_or(&said).to_owned());
            remedies.extend(remedy.map(str::to_owned));
        }
        Self::new(status, told.join(": "), remedies.join("; "))
    }

    /// A limit that cannot be.
    pub fn of_limit(error: &BadLimit) -> Self {
        let problem = Self::said(StatusCode::BAD_REQUEST, error);
        match error.field() {
            Some(field) => problem.of(&field),
            None => problem,
        }
    }

    /// What the command line would say of an option, of the field that is called like it.
    pub fn of_option(error: &dyn Error) -> Self {
        let said = error.to_string();
        let option = said.strip_prefix("--").and_then(|said| {
            let end =
                said.find(|character: char| !character.is_ascii_alphabetic() && character != '-')?;
            Some((said[..end].replace('-', "_"), &said[end..]))
        });
        match option {
            // Users and groups are numbers here.
            Some((field, _)) if field == "socket_owner" => {
                Self::bad_request("there is no such user", "give the number of one")
                    .of("socket_uid")
            }
            Some((field, _)) if field == "socket_group" => {
                Self::bad_request("there is no such group", "give the number of one")
                    .of("socket_gid")
            }
            Some((field, rest)) => {
                let (detail, remedy) = rest.split_once("; ").unwrap_or((rest, ""));
                Self::bad_request(format!("{field}{detail}"), remedy).of(&field)
            }
            None => Self::said(StatusCode::BAD_REQUEST, error),
        }
    }

    pub fn of(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        match &*self.remedy {
            "" => Ok(()),
            remedy => write!(f, "; {remedy}"),
        }
    }
}
