//! The frontend's part in recovery: it keeps the in-flight record while servers come and go.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::driver::Driver;
use super::message::{Code, Frontend};
use super::queue::QUEUE_ENTRIES;

const HEADER: u64 = 16;
const ENTRY: u64 = 16;

/// An in-flight record as a server made it.
#[derive(Debug)]
pub struct Inflight {
    /// Size and offset in the file, queues, entries of each: as the messages have them.
    pub description: Vec<u8>,
    /// Its memory.
    pub file: File,
}

/// The body of the messages about a record.
pub fn description(bytes: u64, offset: u64, queues: u16, entries: u16) -> Vec<u8> {
    let mut body = [bytes.to_le_bytes(), offset.to_le_bytes()].concat();
    body.extend(queues.to_le_bytes());
    body.extend(entries.to_le_bytes());
    body.extend([0; 4]); // a C structure's end
    body
}

impl Inflight {
    /// Has the server make a record.
    pub fn get(frontend: &Frontend, queues: u16, entries: u16) -> io::Result<Self> {
        let wanted = description(0, 0, queues, entries);
        let (description, file) = frontend.ask_for_fd(Code::GetInflightFd, &wanted)?;
        let file = File::from(file);
        Ok(Self { description, file })
    }

    /// Gives it (back) to a server.
    pub fn set(&self, frontend: &Frontend) -> io::Result<()> {
        let file = self.file.as_fd();
        frontend.tell(Code::SetInflightFd, &self.description, &[file])
    }

    /// The first bytes of queue 0's part: what is said of all of it, and the first entries.
    pub fn beginning<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// How many requests of queue `queue` are in flight, by the record.
    pub fn in_flight(&self, queue: u16) -> io::Result<usize> {
        let entries = u64::from(QUEUE_ENTRIES);
        let part = (HEADER + ENTRY * entries).next_multiple_of(64);
        let mut bytes = vec![0; usize::try_from(ENTRY * entries).expect("a record is small")];
        let at = u64::from(queue) * part + HEADER;
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.iter().step_by(16).filter(|flag| **flag == 1).count())
    }
}

impl Driver {
    /// Has the server make a record for all queues, and keep it from now on.
    pub fn keep_record(&self) -> io::Result<Inflight> {
        let queues = u16::try_from(self.queues.len()).expect("few queues");
        let inflight = Inflight::get(&self.frontend, queues, QUEUE_ENTRIES)?;
        inflight.set(&self.frontend)?;
        Ok(inflight)
    }

    /// Goes on with the server that listens on `socket` now, as QEMU does: with the same memory and rings,
    /// of which it knows no more than what has come back.
    pub fn connect_again(&mut self, socket: &Path, inflight: &Inflight) -> io::Result<()> {
        self.dial_again(socket)?;
        self.go_on(inflight)
    }

    /// The first half of that: a session without memory and rings.
    pub fn dial_again(&mut self, socket: &Path) -> io::Result<()> {
        self.frontend = Frontend::connect(socket)?;
        Self::negotiate(&self.frontend, !self.features)?;
        Ok(())
    }

    /// The second half.
    pub fn go_on(&mut self, inflight: &Inflight) -> io::Result<()> {
        inflight.set(&self.frontend)?;
        self.frontend.set_mem_table(&[self.memory.region()])?;
        for index in 0..self.queues.len() {
            self.queues[index].base = self.queues[index].used();
            self.start(index)?;
        }
        Ok(())
    }
}
