//! Writes, zeroes and flushes that never wait for each other, until the server is killed and the power fails.

use std::collections::{BTreeMap, BTreeSet};

use blkio::ReqFlags;
use fastrand::Rng;

use crate::client::{Client, Done, Memory, Queue, Shape};
use crate::records::{Expected, Job, Lost, Place, RECORD, Record};
use crate::server::Server;

/// Records on the disk.
const PLACES: u64 = 2048;
/// Bytes of the disk.
pub const DISK: u64 = PLACES * RECORD as u64;

/// What a completed request says about durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Changes are durable when a flush that was submitted after their completion has completed.
    Flush,
    /// Every change is durable when it has completed.
    Write,
}

impl Promise {
    /// That of a disk that is served with `cache`.
    pub fn of(cache: &str) -> Self {
        match cache {
            "writethrough" => Self::Write,
            _ => Self::Flush,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    Change(Record),
    /// What it covers are the first so many of the changes that have completed.
    Flush(usize),
}

const CHANGES: usize = 16;
const FLUSHES: usize = 2;

/// A client under full load.
pub struct Storm {
    queue: Queue,
    memory: Memory,
    job: Job,
    promise: Promise,
    expected: Expected,
    slots: Vec<Option<InFlight>>,
    busy: BTreeSet<Place>,
    completed: Vec<Record>,
    /// What each byte was at first.
    before: u8,
    /// Of each place, the last record that is zeroes.
    zeroed: BTreeMap<Place, Record>,
}

impl Storm {
    /// Begins at the disk of `server`, where each byte is `before`: zeroes that are lost show where that is not 0.
    ///
    /// # Panics
    /// When it cannot connect.
    pub fn start(server: &Server, seed: u64, promise: Promise, before: u8) -> Self {
        let shape = Shape::polling(1, 64);
        let (client, mut queues) = Client::connect(server.socket(), shape).expect("it serves");
        Self {
            queue: queues.remove(0),
            memory: client.memory(CHANGES * RECORD).expect("some memory"),
            job: Job::new(seed, 0, PLACES),
            promise,
            expected: Expected::new(seed),
            slots: vec![None; CHANGES + FLUSHES],
            busy: BTreeSet::new(),
            completed: Vec::new(),
            before,
            zeroed: BTreeMap::new(),
        }
    }

    /// Goes on until something is known of up to `most` places, and then until any moment.
    pub fn rage(&mut self, random: &mut Rng, most: usize) {
        let enough = 1 + random.usize(..most);
        while self.expected.places() < enough {
            self.go_on();
        }
        for _ in 0..random.u64(..1000) {
            self.go_on();
        }
    }

    /// Replaces what has come back, without waiting: the server may be dead at any moment.
    fn go_on(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_none() {
                self.slots[slot] = self.submit(slot);
            }
        }
        self.queue.wait(0).expect("a look never fails");
        while let Some(done) = self.queue.take() {
            self.note(done);
        }
    }

    fn submit(&mut self, slot: usize) -> Option<InFlight> {
        if slot >= CHANGES {
            // With nothing new to cover, a flush says nothing.
            let worth = self.promise == Promise::Flush && !self.completed.is_empty();
            return worth.then(|| {
                self.queue.flush(slot);
                InFlight::Flush(self.completed.len())
            });
        }
        // Of two changes of one place at the same time either may win.
        let record = std::iter::repeat_with(|| self.job.next_record())
            .find(|record| !self.busy.contains(&record.place))?;
        self.busy.insert(record.place);
        let offset = record.place * RECORD as u64;
        if is_zeroes(record) {
            self.zeroed.insert(record.place, record);
            let flags = if record.sequence.is_multiple_of(2) {
                ReqFlags::NO_UNMAP
            } else {
                ReqFlags::empty()
            };
            self.queue.write_zeroes(offset, RECORD as u64, slot, flags);
        } else {
            let range = slot * RECORD..(slot + 1) * RECORD;
            self.memory.put(range.start, &record.encode());
            self.queue
                .write(offset, &self.memory, range, slot, ReqFlags::empty());
        }
        Some(InFlight::Change(record))
    }

    fn note(&mut self, done: Done) {
        done.result.expect("nothing fails");
        let request = self.slots[done.token].take();
        match request.expect("a request comes back once") {
            InFlight::Change(record) => {
                self.busy.remove(&record.place);
                match self.promise {
                    Promise::Flush => self.completed.push(record),
                    Promise::Write => self.expected.cover(record),
                }
            }
            InFlight::Flush(covers) => {
                for &record in &self.completed[..covers] {
                    self.expected.cover(record);
                }
            }
        }
    }

    /// Looks at what the disk holds when the power is back.
    ///
    /// # Errors
    /// The first place that holds something else than was promised.
    pub fn ends(self, mut survived: Vec<u8>) -> Result<(), Lost> {
        self.name_zeroes(&mut survived);
        self.forget_torn(&mut survived);
        self.memory.abandon();
        self.expected.check(&survived)
    }

    /// Puts the record that zeroes may be where there are zeroes, and zeroes where nothing has happened.
    fn name_zeroes(&self, survived: &mut [u8]) {
        for (place, block) in (0..).zip(survived.chunks_mut(RECORD)) {
            let is_all = |wanted| block.iter().all(|byte| *byte == wanted);
            if let Some(record) = self.zeroed.get(&place)
                && is_all(0)
            {
                block.copy_from_slice(&record.encode());
            } else if is_all(self.before) {
                block.fill(0);
            }
        }
    }

    /// Puts the older record where a change that had not been promised is there in part: it was under way when the
    /// power failed.
    fn forget_torn(&self, survived: &mut [u8]) {
        let in_flight = self.slots.iter().filter_map(|slot| match slot {
            Some(InFlight::Change(record)) => Some(*record),
            _ => None,
        });
        let unpromised: Vec<Record> = self.completed.iter().copied().chain(in_flight).collect();
        for (place, block) in (0..).zip(survived.chunks_mut(RECORD)) {
            if Record::decode(block).is_some() {
                continue;
            }
            let least = self.expected.least(place);
            let sequence = least.map_or(0, |record| record.sequence);
            let here = unpromised.iter().filter(|record| record.place == place);
            let later = here.filter(|record| record.sequence > sequence);
            let news: Vec<_> = later.map(|record| content(*record)).collect();
            let old = least.map_or([self.before; RECORD], content);
            let olds = [&old].into_iter().chain(&news);
            if { olds }.any(|old| news.iter().any(|new| is_torn(new, old, block))) {
                block.copy_from_slice(&least.map_or([0; RECORD], Record::encode));
            }
        }
    }
}

/// A third of all records are not written: their places are made zero.
const fn is_zeroes(record: Record) -> bool {
    record.sequence.is_multiple_of(3)
}

/// What is at the place of a record.
fn content(record: Record) -> [u8; RECORD] {
    if is_zeroes(record) {
        [0; RECORD]
    } else {
        record.encode()
    }
}

/// Is `block` what is `new` up to some byte and `old` from there on? A page of the cache may be written back while the
/// next write is copied into it.
fn is_torn(new: &[u8], old: &[u8], block: &[u8]) -> bool {
    let kept = block.iter().zip(new).take_while(|(byte, new)| byte == new);
    let copied = kept.count();
    block[copied..] == old[copied..]
}
