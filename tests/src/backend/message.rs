//! The messages, as QEMU's docs/interop/vhost-user.rst lays them out, from the backend's side.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::memory::Extent;

/// What a frontend asks, by number.
#[allow(missing_docs)] // the protocol's names
pub mod code {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// What a backend says of its own accord: that the configuration space has changed.
const CONFIG_CHANGE: u32 = 2;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// In the payload of messages that pass the descriptor of a ring: there is none.
const NO_FD: u64 = 1 << 8;

/// One message of the frontend.
pub(super) struct Message {
    pub code: u32,
    flags: u32,
    payload: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Message {
    pub const fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The 32-bit field `index` of the payload.
    pub fn u32(&self, index: usize) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.field(4 * index)?))
    }

    /// The 64-bit field at byte `at` of the payload.
    pub fn u64_at(&self, at: usize) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.field(at)?))
    }

    fn field<const N: usize>(&self, at: usize) -> io::Result<[u8; N]> {
        let bytes = self.payload.get(at..at + N);
        let field = bytes.and_then(|bytes| bytes.try_into().ok());
        field.ok_or_else(|| {
            let (code, len) = (self.code, self.payload.len());
            io::Error::other(format!("message {code} has a payload of {len} bytes"))
        })
    }

    /// The region described at byte `at` of the payload.
    pub fn extent(&self, at: usize) -> io::Result<Extent> {
        Ok(Extent {
            guest: self.u64_at(at)?,
            len: self.u64_at(at + 8)?,
            user: self.u64_at(at + 16)?,
            offset: self.u64_at(at + 24)?,
        })
    }

    /// Of a message that passes the descriptor of a ring: which ring, and the descriptor if there is one.
    pub fn ring_fd(&mut self) -> io::Result<(usize, Option<OwnedFd>)> {
        let word = self.u64_at(0)?;
        let ring = usize::try_from(word & 0xff).expect("a byte");
        let fd = self.fds.pop();
        if fd.is_some() == (word & NO_FD != 0) {
            return Err(io::Error::other(format!(
                "message {}: a descriptor and the word that there is none, or neither",
                self.code
            )));
        }
        Ok((ring, fd))
    }
}

/// The connection to a frontend.
pub(super) struct Connection(UnixStream);

impl Connection {
    pub const fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// The next message; `None` once the frontend has gone.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut header = [0; 12];
        let mut fds = vec![];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut header)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let bytes = match received {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                fds.extend(passed);
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        (&self.0).read_exact(&mut header[bytes..])?;
        let [code, flags, len] =
            [0, 4, 8].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte])));
        let mut payload = vec![0; usize::try_from(len).expect("32 bits")];
        (&self.0).read_exact(&mut payload)?;
        Ok(Some(Message {
            code,
            flags,
            payload,
            fds,
        }))
    }

    /// Answers `code`, as far as the first `share` bytes go.
    pub fn reply(&self, code: u32, payload: &[u8], share: usize) -> io::Result<()> {
        let bytes = message(code, VERSION | REPLY, payload);
        (&self.0).write_all(&bytes[..share.min(bytes.len())])
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Says over the channel `to` that the configuration space has changed.
pub(super) fn tell_config_change(to: OwnedFd) -> io::Result<OwnedFd> {
    let mut socket = UnixStream::from(to);
    socket.write_all(&message(CONFIG_CHANGE, VERSION, &[]))?;
    Ok(socket.into())
}

fn message(code: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("messages are short");
    let header = [code, flags, len];
    let header = header.iter().flat_map(|field| field.to_le_bytes());
    header.chain(payload.iter().copied()).collect()
}
