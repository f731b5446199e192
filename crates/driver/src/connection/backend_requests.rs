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
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn message(request: u32, flags: u32, size: u32) -> Vec<u8> {
        [request, flags, size]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    }

    #[test]
    fn a_change_is_heard_and_answered_where_that_is_wanted() {
        let (ours, mut theirs) = pair();
        assert_eq!(take(&ours, true).unwrap(), BackendRequest::Nothing);
        theirs.write_all(&message(2, 1, 0)).unwrap();
        theirs.write_all(&message(2, 1 | NEED_REPLY, 0)).unwrap();
        theirs.write_all(&message(77, 1 | NEED_REPLY, 0)).unwrap();
        assert_eq!(take(&ours, true).unwrap(), BackendRequest::ConfigChange);
        assert_eq!(take(&ours, true).unwrap(), BackendRequest::ConfigChange);
        assert_eq!(take(&ours, true).unwrap(), BackendRequest::Unknown(77));
        drop(ours);
        let mut answers = Vec::new();
        theirs.read_to_end(&mut answers).unwrap();
        let answer = |request, result: u64| {
            let mut bytes = message(request, 1 | REPLY, 8);
            bytes.extend(result.to_ne_bytes());
            bytes
        };
        assert_eq!(answers, [answer(2, 0), answer(77, 1)].concat());
    }

    #[test]
    fn nobody_waits_for_an_answer_that_was_not_agreed_on() {
        let (ours, mut theirs) = pair();
        theirs.write_all(&message(2, 1 | NEED_REPLY, 0)).unwrap();
        assert_eq!(take(&ours, false).unwrap(), BackendRequest::ConfigChange);
        drop(ours);
        assert_eq!(theirs.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn nonsense_and_the_end_are_told() {
        for bytes in [
            &message(2, 1, 0)[..5],
            &message(2, 1, 8),
            &message(2, 0, 0),
            &message(2, 1 | REPLY, 0),
            &[],
        ] {
            let (ours, mut theirs) = pair();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            take(&ours, true).unwrap_err();
        }
    }
}
