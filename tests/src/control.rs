//! A client of the control socket that knows nothing of HTTP but bytes, so that it can be a bad one.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

use crate::server::Server;

/// How long an answer may take: after some seconds a daemon says that it takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon of one disk, in the sandbox, with its control socket beside that of the disk.
pub struct Daemon {
    /// The process.
    pub server: Server,
    /// Where frontends connect.
    pub disk: PathBuf,
    /// Where it is asked.
    pub control: PathBuf,
    /// What its disk is there.
    pub path: String,
}

impl Daemon {
    /// Serves `spec` by the name of `name` in `folder`, with these options as well.
    pub fn start(folder: &Path, name: &str, spec: &str, more: &[&str]) -> io::Result<Self> {
        let disk = folder.join(format!("{name}.sock"));
        let control = folder.join(format!("{name}.control"));
        let at = control.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let words = ["--disk", spec, "--sandbox", "require", "--control", at];
        Ok(Self {
            server: Server::pollux(&disk, &[&words, more].concat())?,
            disk,
            control,
            path: format!("/v1/disks/{name}"),
        })
    }

    /// What `GET path` is answered with.
    ///
    /// # Panics
    /// When that is not what was asked for.
    pub fn get(&self, path: &str) -> Value {
        good(path, ask(&self.control, "GET", path))
    }

    /// The same of a change.
    ///
    /// # Panics
    /// When it is not made.
    pub fn change(&self, method: &str, path: &str, body: &Value) -> Value {
        good(path, change(&self.control, method, path, body))
    }

    /// Ends it, as it should end.
    ///
    /// # Panics
    /// When it says that it failed. Its log is returned.
    pub fn ends_well(self) -> String {
        let (ended, said) = self.server.terminate().expect("it ends");
        assert_eq!(ended.code(), Some(0), "{said}");
        said
    }

    /// The same of what is no JSON.
    ///
    /// # Panics
    /// When that is not what was asked for.
    pub fn text(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: pollux\r\n\r\n");
        let answer = say(&self.control, request.as_bytes()).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert_eq!(status(head), 200, "{path}: {answer}");
        body.to_owned()
    }
}

fn good(path: &str, answer: io::Result<(u16, Value)>) -> Value {
    let (status, body) = answer.expect("it answers");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Connects.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A client that says nothing, until the daemon closes the connection: its time is over, and that of all before it.
pub fn closed(socket: &Path) -> io::Result<()> {
    say(socket, b"").map(drop)
}

/// All that comes back for these bytes, until the daemon closes the connection.
pub fn say(socket: &Path, bytes: &[u8]) -> io::Result<String> {
    let mut stream = connect(socket)?;
    // It may have been closed before all was sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // What it did not read, it threw away.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The status of an answer; 0 where there is none.
#[must_use]
pub fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1);
    status.and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Asks as a good client does: the status and the body.
pub fn ask(socket: &Path, method: &str, path: &str) -> io::Result<(u16, Value)> {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: pollux\r\n\r\n");
    read(&say(socket, request.as_bytes())?)
}

/// Status and body of an answer; a body without a byte is null.
fn read(answer: &str) -> io::Result<(u16, Value)> {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let body = if body.is_empty() { "null" } else { body };
    Ok((status(answer), serde_json::from_str(body)?))
}

/// Changes something as a good client does: the status and the body.
pub fn change(socket: &Path, method: &str, path: &str, body: &Value) -> io::Result<(u16, Value)> {
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: pollux\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    read(&say(socket, request.as_bytes())?)
}

/// The same, with a descriptor.
pub fn pass(socket: &Path, path: &str, body: &Value, image: impl AsFd) -> io::Result<(u16, Value)> {
    let stream = connect(socket)?;
    let body = body.to_string();
    let length = body.len();
    let request =
        format!("PUT {path} HTTP/1.1\r\nHost: pollux\r\nContent-Length: {length}\r\n\r\n{body}");
    let images = [image.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    beside.push(SendAncillaryMessage::ScmRights(&images));
    let parts = [IoSlice::new(request.as_bytes())];
    sendmsg(&stream, &parts, &mut beside, SendFlags::NOSIGNAL)?;
    let mut answer = String::new();
    (&stream).read_to_string(&mut answer)?;
    read(&answer)
}

/// The body of an answer to `GET path` over TCP.
pub fn fetch(address: SocketAddr, path: &str, accepted: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: pollux\r\nAccept: {accepted}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status(&answer), body.to_owned()))
}
