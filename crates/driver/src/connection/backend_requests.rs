//! Messages that the server sends of its own accord, on a socket that the driver gave it.
//!
//! Crate `vhost` has a handler for them, which waits without end for the rest of a message and for room
//! for its answers, and keeps the server's end of the socket open, so that its closing goes unseen. The
//! thread that reads them is the one that notices loss, and must not be held: hence these few lines,
//! which never wait. A message to a disk is a header alone, and is sent as one piece.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use vhost::vhost_user::message::BackendReq;

/// What the server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendRequest {
    /// Ask for the configuration again.
    ConfigChange,
    /// Something that is not for disks.
    Unknown(u32),
    /// Nothing, yet.
    Nothing,
}

/// `request`, `flags` and `size`, each a `u32` in the machine's byte order.
const HEADER: usize = 12;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Takes the next message from `stream`, which does not block, and answers it if the sender waits for
/// that and `may_wait`.
///
/// # Errors
///
/// When the server has closed its end, or sends what is no message: the stream is of no more use.
pub(crate) fn take(stream: &UnixStream, may_wait: bool) -> io::Result<BackendRequest> {
    let mut header = [0; HEADER];
    match (&*stream).read(&mut header) {
        Ok(HEADER) => {}
        Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
        Ok(some) => return Err(nonsense(format!("a header of {some} bytes"))),
        Err(error) if is_transient(&error) => return Ok(BackendRequest::Nothing),
        Err(error) => return Err(error),
    }
    let [request, flags, size] = words(header);
    if flags & 0x3 != VERSION || flags & REPLY != 0 || size != 0 {
        let message = format!("message {request} with flags {flags:#x} and {size} bytes");
        return Err(nonsense(message));
    }
    let known = request == u32::from(BackendReq::CONFIG_CHANGE_MSG);
    if may_wait && flags & NEED_REPLY != 0 {
        answer(stream, request, u64::from(!known))?;
    }
    if !known {
        return Ok(BackendRequest::Unknown(request));
    }
    Ok(BackendRequest::ConfigChange)
}

/// Says whether the message was understood: 0 if it was.
fn answer(stream: &UnixStream, request: u32, result: u64) -> io::Result<()> {
    let mut reply = Vec::with_capacity(HEADER + size_of_val(&result));
    for word in [request, VERSION | REPLY, 8] {
        reply.extend(word.to_ne_bytes());
    }
    reply.extend(result.to_ne_bytes());
    // Small, so it goes whole or, to a server that reads no answers, not at all.
    (&*stream).write_all(&reply)
}

fn words(header: [u8; HEADER]) -> [u32; 3] {
    let (words, _) = header.as_chunks();
    [0, 1, 2].map(|at| u32::from_ne_bytes(words[at]))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn nonsense(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
