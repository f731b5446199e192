//! What the log tells of changes: which client has asked, for what, and how it ended.

use std::fmt::Display;

use hyper::StatusCode;
use hyper::http::request::Parts;

/// A change is logged however it ends: where the client leaves before the answer, it may be made all the same.
pub struct Noted<'a, P: Display> {
    peer: &'a P,
    head: &'a Parts,
    body: &'a [u8],
    /// Of the answer.
    status: Option<StatusCode>,
}

impl<'a, P: Display> Noted<'a, P> {
    pub const fn new(peer: &'a P, head: &'a Parts, body: &'a [u8]) -> Self {
        Self {
            peer,
            head,
            body,
            status: None,
        }
    }

    /// It was answered; without a status, it was no change after all, which is known before anything is waited for.
    pub fn ends(mut self, status: Option<StatusCode>) {
        self.status = status;
        if status.is_none() {
            std::mem::forget(self);
        }
    }
}

impl<P: Display> Drop for Noted<'_, P> {
    fn drop(&mut self) {
        let Self { peer, head, .. } = self;
        let (method, path, query) = (&head.method, head.uri.path(), head.uri.query());
        let body = in_one_line(self.body);
        let status = self.status.as_ref().map(StatusCode::as_u16);
        let left = if status.is_none() {
            ", whose client did not wait for the answer"
        } else {
            ""
        };
        let what = match status {
            Some(400..) => "control request that was refused",
            _ => "control change",
        };
        tracing::info!(%peer, %method, path, query, %body, status, "{what}{left}");
    }
}

/// What a client sends makes no lines of the log.
fn in_one_line(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_makes_no_lines_of_the_log() {
        let body = b"{\r\n\t\"bytes\": 1}\n2026-01-01 WARN forged \x1b[31m\xc2\x85\xff";
        let line = in_one_line(body);
        assert_eq!(
            line,
            "{   \"bytes\": 1} 2026-01-01 WARN forged  [31m \u{fffd}"
        );
    }
}
