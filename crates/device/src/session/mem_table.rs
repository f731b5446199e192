//! The table of memory as User-Mode Linux 6.1 sends it: room for two regions, of which it uses one.
//!
//! The crate `vhost` takes no `SET_MEM_TABLE` that is longer than its regions, other back ends do. So such a message,
//! and no other, is read and answered here.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Mutex;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result, VhostUserBackendReqHandlerMut};

use super::Session;

const SET_MEM_TABLE: u32 = 5;
/// In a header's flags: version 1, and whether it is a reply.
const KIND: u32 = 7;
const REQUEST: u32 = 1;
const REPLY: u32 = 1 | 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

const HEADER: usize = 12;
/// What precedes the regions: how many there are, and four bytes of nothing.
const COUNT: usize = 8;
const REGION: usize = 32;
/// More than that no message has (`VHOST_MEMORY_BASELINE_NREGIONS`).
const MOST: usize = 8;

/// A table of memory with more room than regions.
pub struct MemTable {
    regions: Vec<VhostUserMemoryRegion>,
    files: Vec<File>,
    needs_reply: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl MemTable {
    /// Of a message so much tells whether it is one.
    pub const START: usize = HEADER + COUNT;

    /// How long the message is in all that begins with `start`, if it is one.
    pub fn len(start: &[u8; Self::START]) -> Option<usize> {
        let (code, flags, size) = (word(start, 0), word(start, 4), word(start, 8));
        let (regions, nothing) = (word(start, HEADER), word(start, HEADER + 4));
        let (size, regions) = (usize::try_from(size).ok()?, usize::try_from(regions).ok()?);
        let room = size.checked_sub(COUNT)?;
        let whole = room.is_multiple_of(REGION) && room / REGION <= MOST;
        let padded = whole && 0 < regions && regions < room / REGION;
        let it_is = code == SET_MEM_TABLE && flags & KIND == REQUEST && nothing == 0 && padded;
        it_is.then_some(HEADER + size)
    }

    /// What `message` says, which came with `files`. It begins as [`MemTable::len`] wants it, and is as long.
    pub fn new(message: &[u8], files: Vec<File>) -> Self {
        let regions = word(message, HEADER) as usize;
        let region = |bytes: &[u8]| {
            let [guest, len, user, offset] = [0, 8, 16, 24].map(|at| long(bytes, at));
            VhostUserMemoryRegion::new(guest, len, user, offset)
        };
        let room = message[Self::START..].chunks_exact(REGION);
        Self {
            regions: room.take(regions).map(region).collect(),
            files,
            needs_reply: word(message, 4) & NEED_REPLY != 0,
        }
    }

    /// Does what the message says, and acknowledges it on `stream` if it asks for that.
    ///
    /// # Errors
    ///
    /// What `vhost` would say.
    pub fn carry_out(self, session: &Mutex<Session>, mut stream: impl Write) -> Result<()> {
        if self.files.len() != self.regions.len() {
            return Err(Error::InvalidMessage);
        }
        let mut session = session.lock().expect("a handler does not panic");
        let done = session.set_mem_table(&self.regions, self.files, None);
        if self.needs_reply && session.acknowledges() {
            let value = u64::from(done.is_err());
            let mut reply = [SET_MEM_TABLE, REPLY, 8].map(u32::to_le_bytes).concat();
            reply.extend(value.to_le_bytes());
            stream.write_all(&reply).map_err(lost)?;
        }
        done.map(|_| ())
    }
}

/// The frontend has gone.
fn lost(error: io::Error) -> Error {
    Error::SocketBroken(error)
}
