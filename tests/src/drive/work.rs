//! Which requests, and whether they did what they should.

use std::ops::Range;

use fastrand::Rng;
use pollux_disk::{Durability, Geometry, Unmap};

use super::Own;
use crate::model::{Model, SECTOR};

/// What a request is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write(Durability),
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    WriteZeroes(Unmap, Durability),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What to do.
    pub op: Op,
    /// Where on the disk.
    pub at: u64,
    /// Bytes.
    pub len: usize,
}

impl Job {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.len as u64
    }

    /// Does it carry data, either way?
    pub const fn has_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write(_))
    }
}

/// Random requests in one range of a disk, no two of which overlap while they are in flight: so every
/// read has exactly one right answer.
pub struct Work {
    model: Model,
    geometry: Geometry,
    longest: usize,
    in_flight: Vec<Range<u64>>,
    count: u64,
    /// Read in order, once the random ones are over.
    verified: Option<u64>,
    /// Registered memory, where requests can have some.
    pub own: Own,
    /// For whatever else is left to chance.
    pub random: Rng,
}

impl Work {
    /// Requests of at most `longest` bytes in `range`, which reads as zeroes.
    pub fn new(range: &Range<u64>, geometry: Geometry, longest: usize, random: Rng) -> Self {
        Self {
            model: Model::zeroed(range),
            geometry,
            longest,
            in_flight: vec![],
            count: 0,
            verified: None,
            own: Own::default(),
            random,
        }
    }

    /// Requests that have ended as they should.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How many are in flight.
    pub const fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes of the longest request.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// The next request, of at most `room` bytes: a flush where chance met only places that are in use.
    pub fn next(&mut self, room: usize) -> Job {
        let found = (0..8).find_map(|_| self.propose(room));
        found.unwrap_or_else(|| {
            let flush = Job {
                op: Op::Flush,
                at: self.model.range().start,
                len: 0,
            };
            self.in_flight.push(flush.range());
            flush
        })
    }

    /// From now on everything is read in order: the next of these requests, `None` after the last.
    pub fn next_to_verify(&mut self, room: usize) -> Option<Job> {
        let range = self.model.range();
        let at = *self.verified.get_or_insert(range.start);
        let len = usize::try_from(range.end - at).expect("it fits into memory");
        if len == 0 {
            return None;
        }
        let job = Job {
            op: Op::Read,
            at,
            len: len.min(room).min(self.longest),
        };
        if self.is_taken(&job) {
            return None;
        }
        self.verified = Some(at + job.len as u64);
        self.in_flight.push(job.range());
        Some(job)
    }

    /// Is the range of `job` in use?
    fn is_taken(&self, job: &Job) -> bool {
        let range = job.range();
        let overlaps = |other: &Range<u64>| range.start < other.end && other.start < range.end;
        self.in_flight.iter().any(overlaps)
    }

    fn propose(&mut self, room: usize) -> Option<Job> {
        let op = self.op();
        let block = u64::from(self.geometry.block);
        let range = self.model.range();
        let blocks = (range.end - range.start) / block;
        let len = match op {
            Op::Flush => 0,
            _ => self.len(room.min(usize::try_from(blocks * block).expect("in memory"))),
        };
        let places = blocks - len as u64 / block + 1;
        let at = range.start + self.random.u64(..places) * block;
        let job = Job { op, at, len };
        if len > 0 && self.is_taken(&job) {
            return None;
        }
        self.in_flight.push(job.range());
        Some(job)
    }

    fn op(&mut self) -> Op {
        let durability = if self.random.u64(..8) == 0 {
            Durability::Stable
        } else {
            Durability::Volatile
        };
        match self.random.u64(..20) {
            0..9 => Op::Read,
            18 if self.geometry.discard.is_some() => Op::Discard,
            17 if self.geometry.write_zeroes.is_some() => {
                let unmap = if self.random.bool() {
                    Unmap::Allowed
                } else {
                    Unmap::Forbidden
                };
                Op::WriteZeroes(unmap, durability)
            }
            19 => Op::Flush,
            _ => Op::Write(durability),
        }
    }

    /// Most are short, some are longer than a device takes at once.
    fn len(&mut self, room: usize) -> usize {
        let block = usize::try_from(self.geometry.block).expect("32 bits");
        let most = match self.random.u64(..100) {
            0..70 => 16 * SECTOR,
            70..95 => 256 << 10,
            95..99 => 1 << 20,
            _ => self.longest,
        };
        let most = most.min(room) / block;
        block * self.random.usize(1..=most.max(1))
    }

    /// The data of a write.
    pub fn noise(&mut self, len: usize) -> Vec<u8> {
        let mut noise = vec![0; len];
        self.random.fill(&mut noise);
        noise
    }

    /// `len` in pieces: as one, or about `most` or fewer, of whole sectors or of any bytes at all.
    pub fn pieces(&mut self, len: usize, most: usize) -> Vec<usize> {
        let unit = match self.random.u64(..3) {
            0 => return vec![len],
            1 => SECTOR,
            _ => 1,
        };
        let most = self.random.usize(1..most);
        let mut pieces = vec![];
        let mut left = len;
        while left > 0 {
            let share = (left / unit).div_ceil(most).max(1);
            let piece = (unit * self.random.usize(1..=2 * share)).min(left);
            pieces.push(piece);
            left -= piece;
        }
        pieces
    }

    /// `job` is no longer in flight.
    pub fn forget(&mut self, job: &Job) {
        let range = job.range();
        let place = self.in_flight.iter().position(|other| *other == range);
        self.in_flight.swap_remove(place.expect("it was in flight"));
    }

    /// `job` has ended well, with `data` written or read.
    ///
    /// # Panics
    ///
    /// When that is not what should have been read.
    pub fn ended(&mut self, job: &Job, data: &[u8]) {
        self.forget(job);
        self.count += 1;
        match job.op {
            Op::Read => {
                let same = self.model.check(job.at, data);
                assert!(same.is_ok(), "{job:x?}: {}", same.expect_err("it is not"));
            }
            Op::Write(_) => self.model.write(job.at, data),
            Op::Flush => {}
            Op::Discard => self.model.discard(job.at, job.len),
            Op::WriteZeroes(..) => self.model.zero(job.at, job.len),
        }
    }
}
