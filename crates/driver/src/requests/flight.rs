//! What a queue keeps of a request until it has ended.

use pollux_blk::Status;
use pollux_disk::Failure;
use rustix::io::Errno;

use crate::device::limits::{Part, within};
use crate::memory::known_regions::RegionTable;
use crate::requests::bounce::Bounce;
use crate::requests::command::{Command, changes, data_of};

/// What is told when a chain has come back.
#[derive(Debug)]
pub enum Whose<T> {
    /// The owner of the request, which it was all of.
    Sole(T),
    /// A request of several chains, by its key.
    Part(usize),
}

/// A chain in flight.
#[derive(Debug)]
pub struct Flight<T> {
    pub whose: Whose<T>,
    /// None: it is all of the request, in place.
    pub cut: Option<Box<Cut>>,
}

/// A chain that is not simply all of its request.
#[derive(Debug)]
pub struct Cut {
    pub part: Part,
    pub bounce: Option<Bounce>,
}

/// A request of several chains.
#[derive(Debug)]
pub struct Whole<T> {
    pub owner: T,
    pub command: Command,
    /// So many have not ended.
    pub parts: usize,
    pub failure: Option<Failure>,
    /// A flush follows: the write is to be on stable storage.
    pub flush: bool,
    /// What has ended well, of a request that changes the disk: it may be in a cache of the server's.
    ended: Vec<Part>,
}

impl<T> Whole<T> {
    /// A request of so many chains, none of which has ended.
    pub fn new(command: Command, parts: usize, flush: bool, owner: T) -> Self {
        Self {
            owner,
            command,
            parts,
            failure: None,
            flush,
            ended: Vec::new(),
        }
    }

    /// A part of it has ended well.
    pub fn has_done(&mut self, part: Part) {
        if changes(&self.command) {
            self.ended.push(part);
        }
    }

    /// What has ended is done again.
    pub fn undo(&mut self) -> Vec<Part> {
        let ended = std::mem::take(&mut self.ended);
        self.parts += ended.len();
        ended
    }

    /// The flush that follows its parts is to follow them once more.
    pub fn undo_flush(&mut self) {
        self.parts -= 1;
        self.flush = true;
    }
}

/// A chain that is to be staged.
#[derive(Debug)]
pub struct Job<T> {
    pub command: Command,
    pub part: Part,
    pub whose: Whose<T>,
    /// Of one that was staged before, at a server that is gone.
    pub bounce: Option<Bounce>,
}

impl<T> Job<T> {
    /// What it reads or writes in place is in regions that are `known`, or is copied.
    pub fn keeps_to(&mut self, known: &RegionTable) {
        let Some(spans) = data_of(&self.command) else {
            return;
        };
        let mut spans = within(&spans, self.part.skip, self.part.len);
        self.part.bounced |= self.bounce.is_none() && !spans.all(|span| known.holds(span));
    }
}

/// How a request with that status ended. A device that has written none, or nonsense, has failed it.
#[inline]
pub fn result(status: u8) -> Result<(), Failure> {
    if status == Status::Ok.wire() {
        Ok(())
    } else {
        Err(failure(status))
    }
}

#[cold]
fn failure(status: u8) -> Failure {
    match Status::parse(status) {
        Some(Status::Unsupp) => Failure::Unsupported,
        _ => Failure::Io(Errno::IO),
    }
}
