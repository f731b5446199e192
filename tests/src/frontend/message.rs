//! The messages, as QEMU's docs/interop/vhost-user.rst lays them out.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The requests that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the protocol's names
#[repr(u32)]
pub enum Code {
    GetFeatures = 1,
    SetFeatures = 2,
    SetOwner = 3,
    SetMemTable = 5,
    SetLogBase = 6,
    SetVringNum = 8,
    SetVringAddr = 9,
    SetVringBase = 10,
    GetVringBase = 11,
    SetVringKick = 12,
    SetVringCall = 13,
    SetVringErr = 14,
    GetProtocolFeatures = 15,
    SetProtocolFeatures = 16,
    GetQueueNum = 17,
    SetVringEnable = 18,
    SetBackendReqFd = 21,
    GetConfig = 24,
    SetConfig = 25,
    GetInflightFd = 31,
    SetInflightFd = 32,
    GetMaxMemSlots = 36,
    AddMemReg = 37,
    RemMemReg = 38,
}

/// Of the protocol, in the flags of each header.
pub const VERSION: u32 = 1;
/// The message is a reply.
pub const REPLY: u32 = 1 << 2;
/// The message is to be acknowledged.
pub const NEED_REPLY: u32 = 1 << 3;
/// In the payload of `SetVringKick` and `SetVringCall`: there is no fd.
const NO_FD: u64 = 1 << 8;

/// One region of guest memory in a message.
#[derive(Clone, Copy, Debug)]
pub struct Region<'fd> {
    /// Where descriptors see it.
    pub guest: u64,
    /// Where the addresses of rings see it.
    pub user: u64,
    /// Bytes.
    pub len: u64,
    /// The file.
    pub fd: BorrowedFd<'fd>,
}

impl Region<'_> {
    /// As a payload has it.
    pub fn bytes(&self) -> Vec<u8> {
        let fields = [self.guest, self.len, self.user, 0];
        fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect()
    }
}

/// A connection to a backend.
#[derive(Debug)]
pub struct Frontend {
    pub(super) socket: UnixStream,
}

impl Frontend {
    /// Connects to `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Self::over(UnixStream::connect(path)?)
    }

    /// Uses a connection that exists.
    pub fn over(socket: UnixStream) -> io::Result<Self> {
        // An answer that does not come is a failure, not a test that hangs.
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { socket })
    }

    fn send(
        &self,
        code: Code,
        flags: u32,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let len = u32::try_from(payload.len()).expect("messages are short");
        let header = [code as u32, VERSION | flags, len];
        let mut message: Vec<u8> = header
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect();
        message.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(
                ancillary.push(SendAncillaryMessage::ScmRights(fds)),
                "at most 8 fds"
            );
        }
        let sent = sendmsg(
            &self.socket,
            &[IoSlice::new(&message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        assert_eq!(sent, message.len(), "a message fits into the socket");
        Ok(())
    }

    /// Waits for the answer to `code`.
    ///
    /// # Errors
    /// When something else comes.
    pub fn receive(&self, code: Code) -> io::Result<Vec<u8>> {
        let mut header = [0; 12];
        (&self.socket).read_exact(&mut header)?;
        let field =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if (field(0), field(4) & 7) != (code as u32, VERSION | REPLY) {
            return Err(io::Error::other(format!(
                "{header:02x?} is no reply to {code:?}"
            )));
        }
        let mut payload = vec![0; field(8) as usize];
        (&self.socket).read_exact(&mut payload)?;
        Ok(payload)
    }

    /// Sends a request that has no reply of its own, and waits for its acknowledgement.
    ///
    /// # Errors
    /// Also when the backend says that it failed.
    pub fn tell(&self, code: Code, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send(code, NEED_REPLY, payload, fds)?;
        match self.receive(code)?.as_slice() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
            failure => Err(io::Error::other(format!("{code:?} failed: {failure:02x?}"))),
        }
    }

    /// Sends a request that is answered.
    pub fn ask(&self, code: Code, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.send(code, 0, payload, &[])?;
        self.receive(code)
    }

    /// Sends a request that is answered with a descriptor as well.
    pub fn ask_for_fd(&self, code: Code, payload: &[u8]) -> io::Result<(Vec<u8>, OwnedFd)> {
        self.send(code, 0, payload, &[])?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        // A look at the first byte tells of the descriptor that comes with it, and leaves the message there.
        let mut first = [0];
        recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut first)],
            &mut ancillary,
            flags,
        )?;
        let mut fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.next().and_then(|mut fds| fds.next());
        let fd = fd.ok_or_else(|| io::Error::other(format!("{code:?}: no descriptor")))?;
        Ok((self.receive(code)?, fd))
    }

    /// Sends a request before acknowledgements are negotiated.
    pub fn tell_early(&self, code: Code, payload: &[u8]) -> io::Result<()> {
        self.send(code, 0, payload, &[])
    }

    /// Asks for a number.
    pub fn number(&self, code: Code) -> io::Result<u64> {
        let reply = self.ask(code, &[])?;
        let bytes = reply
            .try_into()
            .map_err(|reply| io::Error::other(format!("{code:?}: {reply:02x?}")))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Sends two 32-bit numbers: a queue and something about it.
    pub fn vring_state(&self, code: Code, queue: u32, number: u32) -> io::Result<()> {
        self.tell(code, &pair(queue, number), &[])
    }

    /// Stops a queue, and returns where it stopped.
    pub fn get_vring_base(&self, queue: u32) -> io::Result<u32> {
        let reply = self.ask(Code::GetVringBase, &pair(queue, 0))?;
        assert_eq!(
            reply[..4],
            queue.to_le_bytes(),
            "the queue that was asked about"
        );
        Ok(u32::from_le_bytes(
            reply[4..8].try_into().expect("four bytes"),
        ))
    }

    /// Passes the kick or call fd of a queue, or that there is none.
    pub fn vring_fd(&self, code: Code, queue: u32, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let (flag, fds) = fd.map_or((NO_FD, vec![]), |fd| (0, vec![fd]));
        self.tell(code, &(u64::from(queue) | flag).to_le_bytes(), &fds)
    }

    /// Passes the channel over which the backend speaks first.
    pub fn set_backend_req_fd(&self, channel: BorrowedFd<'_>) -> io::Result<()> {
        self.send(Code::SetBackendReqFd, 0, &[], &[channel])
    }

    /// Passes the log of dirty pages, `len` bytes of `fd` at `offset`, and waits for the reply.
    pub fn set_log_base(
        &self,
        len: u64,
        offset: u64,
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let payload = [len.to_le_bytes(), offset.to_le_bytes()].concat();
        let fds: Vec<_> = fd.into_iter().collect();
        self.send(Code::SetLogBase, 0, &payload, &fds)?;
        // What it says is not defined.
        self.receive(Code::SetLogBase).map(|_| ())
    }

    /// Replaces all memory.
    pub fn set_mem_table(&self, regions: &[Region<'_>]) -> io::Result<()> {
        let count = u32::try_from(regions.len()).expect("few regions");
        let mut payload = pair(count, 0);
        payload.extend(regions.iter().flat_map(Region::bytes));
        let fds: Vec<_> = regions.iter().map(|region| region.fd).collect();
        self.tell(Code::SetMemTable, &payload, &fds)
    }

    /// Adds a region.
    pub fn add_mem_reg(&self, region: &Region<'_>) -> io::Result<()> {
        let payload = [vec![0; 8], region.bytes()].concat();
        self.tell(Code::AddMemReg, &payload, &[region.fd])
    }

    /// Takes a region away.
    pub fn rem_mem_reg(&self, region: &Region<'_>) -> io::Result<()> {
        let payload = [vec![0; 8], region.bytes()].concat();
        self.tell(Code::RemMemReg, &payload, &[])
    }

    /// Stores `bytes` at `offset` of the configuration space.
    pub fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).expect("a configuration space is small");
        let mut payload: Vec<u8> = [offset, len, 0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        payload.extend(bytes);
        self.tell(Code::SetConfig, &payload, &[])
    }

    /// `len` bytes of the configuration space at `offset`; what the backend answers to that.
    pub fn get_config(&self, offset: u32, len: u32) -> io::Result<Vec<u8>> {
        let fields = [offset, len, 0].into_iter().flat_map(u32::to_le_bytes);
        let payload: Vec<u8> = fields.chain(vec![0; len as usize]).collect();
        let reply = self.ask(Code::GetConfig, &payload)?;
        Ok(reply.get(12..).unwrap_or_default().to_vec())
    }
}

/// Two 32-bit numbers as a payload.
pub fn pair(first: u32, second: u32) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}
