//! Messages that no frontend should send: any header, any body, any descriptors.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::message::{Code, Frontend, VERSION};

/// The most descriptors that the kernel lets one message carry.
const MOST_FDS: usize = 253;

/// A message, field by field.
#[derive(Clone, Debug)]
pub struct Raw<'fd> {
    /// Which request.
    pub code: u32,
    /// The version and whatever else.
    pub flags: u32,
    /// What the header says about the payload; its length, if nothing.
    pub len: Option<u32>,
    /// What follows the header.
    pub payload: Vec<u8>,
    /// What goes with it.
    pub fds: Vec<BorrowedFd<'fd>>,
}

impl<'fd> Raw<'fd> {
    /// A message as it should be, to be spoilt.
    pub fn new(code: Code, payload: Vec<u8>) -> Self {
        Self {
            code: code as u32,
            flags: VERSION,
            len: None,
            payload,
            fds: Vec::new(),
        }
    }

    /// The same with descriptors.
    #[must_use]
    pub fn with(self, fds: Vec<BorrowedFd<'fd>>) -> Self {
        Self { fds, ..self }
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let there = u32::try_from(self.payload.len()).expect("messages are short");
        let len = self.len.unwrap_or(there);
        let mut bytes = words(&[self.code, self.flags, len]);
        bytes.extend(&self.payload);
        bytes
    }
}

/// 32-bit numbers as a payload.
pub fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

impl Frontend {
    /// Sends a message of any kind.
    ///
    /// # Errors
    /// Also when the backend has closed the connection.
    pub fn send_raw(&self, raw: &Raw<'_>) -> io::Result<()> {
        self.send_bytes(&raw.bytes(), &raw.fds)
    }

    /// Sends bytes with descriptors attached to the first of them.
    ///
    /// # Errors
    /// Also when the backend has closed the connection.
    pub fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "at most {MOST_FDS} fds");
        }
        let parts = [IoSlice::new(bytes)];
        let sent = sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        (&self.socket).write_all(&bytes[sent..])
    }

    /// Waits until the backend closes the connection, and returns all that it said before.
    ///
    /// # Errors
    /// When it does not for a minute.
    pub fn until_closed(&self) -> io::Result<Vec<u8>> {
        let mut said = vec![];
        let mut some = [0; 4096];
        loop {
            match (&self.socket).read(&mut some) {
                Ok(0) => return Ok(said),
                Ok(len) => said.extend(&some[..len]),
                // It went with messages of ours unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(said),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends `bytes` again and again until the socket takes no more, and the backend, which has to answer, has
    /// stopped to read.
    ///
    /// # Panics
    /// When the backend closes the connection.
    pub fn send_until_full(&self, bytes: &[u8]) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut full = 0;
        // Full once may mean that it was slow.
        while full < 1000 {
            match send(&self.socket, bytes, flags) {
                Ok(sent) => {
                    assert_eq!(sent, bytes.len(), "a message is short");
                    full = 0;
                }
                Err(Errno::AGAIN) => {
                    full += 1;
                    std::thread::yield_now();
                }
                Err(error) => panic!("the connection is closed: {error}"),
            }
        }
    }

    /// How many bytes of answers are there to be read.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn unread(&self) -> io::Result<u64> {
        Ok(ioctl_fionread(&self.socket)?)
    }

    /// Says that there is nothing more to come.
    ///
    /// # Errors
    /// When the backend has closed the connection.
    pub fn stop_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}
