//! Where clusters lie, for threads that must not wait: the mappings that have been looked up.
//!
//! Mappings are kept in *chunks* of [`CLUSTERS`] guest clusters. A channel that uses some *enters* the chunks first,
//! and leaves them when its request has ended. The thread that changes a mapping on which a request may rest *closes*
//! the chunk, waits until none is inside, changes it, and opens it again; a worker that finds a chunk closed takes
//! the way that waits. So a cluster is never freed, and used anew, under a request that goes there. (One that only
//! becomes unknown stays where it is: the chunk is not closed for that.) See `docs/notes/0010`.
//!
//! Only one thread changes mappings. There are at most [`MAX_CHUNKS`]: a chunk gives way to another with the same
//! place.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use pollux_threads::lock;

/// Guest clusters of a chunk.
pub const CLUSTERS: u64 = 512;
/// Chunks of 4 KiB: the mappings of 256 GiB in clusters of 64 KiB.
const MAX_CHUNKS: u64 = 8192;

/// No channel may enter.
const CLOSED: u64 = 1 << 63;
const NO_CHUNK: u64 = u64::MAX;

/// Where a guest cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// The thread of the image has to look it up.
    Unknown,
    /// Nowhere: it reads as zeroes.
    Zero,
    /// As raw data in a file.
    Data(Data),
}

/// Raw data of a guest cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Which file of the chain.
    pub leg: usize,
    /// Where it begins there: a multiple of 512.
    pub at: u64,
    /// May it be overwritten where it is?
    pub writable: bool,
}

const ZERO: u64 = 1;
const READ_ONLY: u64 = 2;
const WRITABLE: u64 = 3;
const KIND: u64 = 3;
/// How many files a chain can have: their number has 7 bits of an entry.
pub const MAX_LEGS: usize = 128;

impl Mapped {
    fn from_entry(entry: u64) -> Self {
        let data = |writable| {
            let leg = (entry >> 2) & (MAX_LEGS as u64 - 1);
            Self::Data(Data {
                leg: usize::try_from(leg).expect("seven bits"),
                at: entry & !511,
                writable,
            })
        };
        match entry & KIND {
            ZERO => Self::Zero,
            READ_ONLY => data(false),
            WRITABLE => data(true),
            _ => Self::Unknown,
        }
    }

    fn entry(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Zero => ZERO,
            Self::Data(Data { leg, at, writable }) => {
                debug_assert!(leg < MAX_LEGS && at % 512 == 0);
                let kind = if writable { WRITABLE } else { READ_ONLY };
                at | (leg as u64) << 2 | kind
            }
        }
    }
}

/// The mappings that are known.
#[derive(Debug)]
pub struct Map {
    chunks: Box<[Chunk]>,
    /// Held by the thread that sleeps until a chunk is empty, and by the one that tells it.
    waiting: Mutex<()>,
    left: Condvar,
}

#[derive(Debug)]
struct Chunk {
    /// How many are inside, and [`CLOSED`].
    gate: AtomicU64,
    /// Which chunk of the disk it is. It changes while the chunk is closed and empty, and at no other time.
    number: AtomicU64,
    entries: OnceLock<Box<[AtomicU64]>>,
}

/// Chunks that were entered, from one to another: their owner leaves them once, by [`Map::leave`].
#[derive(Clone, Copy, Debug)]
#[must_use = "what was entered is to be left"]
pub struct Inside {
    first: u64,
    last: u64,
}

impl Map {
    /// Of a disk with so many clusters; one that grows needs no other.
    pub fn new(clusters: u64) -> Self {
        let chunks = clusters.div_ceil(CLUSTERS).max(1).next_power_of_two();
        let chunk = |_| Chunk {
            gate: AtomicU64::new(0),
            number: AtomicU64::new(NO_CHUNK),
            entries: OnceLock::new(),
        };
        Self {
            chunks: (0..chunks.min(MAX_CHUNKS)).map(chunk).collect(),
            waiting: Mutex::default(),
            left: Condvar::new(),
        }
    }

    fn chunk(&self, number: u64) -> &Chunk {
        let at = number & (self.chunks.len() as u64 - 1);
        &self.chunks[usize::try_from(at).expect("an index")]
    }

    /// Enters the chunks of `clusters`, unless one of them is closed or not there.
    #[inline]
    pub fn enter(&self, clusters: RangeInclusive<u64>) -> Option<Inside> {
        let (first, last) = (clusters.start() / CLUSTERS, clusters.end() / CLUSTERS);
        for number in first..=last {
            if !self.enter_one(number) {
                if number > first {
                    let last = number - 1;
                    self.leave(Inside { first, last });
                }
                return None;
            }
        }
        Some(Inside { first, last })
    }

    #[inline]
    fn enter_one(&self, number: u64) -> bool {
        let chunk = self.chunk(number);
        if chunk.number.load(Ordering::Relaxed) != number {
            return false;
        }
        // With what was changed before the chunk was opened.
        if chunk.gate.fetch_add(1, Ordering::Acquire) & CLOSED == 0
            && chunk.number.load(Ordering::Relaxed) == number
        {
            return true;
        }
        self.leave_one(chunk);
        false
    }

    /// The request is over that was to use what it entered.
    #[inline]
    pub fn leave(&self, inside: Inside) {
        for number in inside.first..=inside.last {
            self.leave_one(self.chunk(number));
        }
    }

    #[inline]
    fn leave_one(&self, chunk: &Chunk) {
        // With what the request has done, before what it used is changed.
        if chunk.gate.fetch_sub(1, Ordering::Release) == CLOSED | 1 {
            // A thread that waits is asleep by now, or holds the lock and checks again.
            drop(lock(&self.waiting));
            self.left.notify_all();
        }
    }

    /// Where `cluster` lies. Its chunk was entered, or this is the thread that changes mappings.
    #[inline]
    pub fn get(&self, cluster: u64) -> Mapped {
        let chunk = self.chunk(cluster / CLUSTERS);
        if chunk.number.load(Ordering::Relaxed) != cluster / CLUSTERS {
            return Mapped::Unknown;
        }
        let entry = chunk.entries.get().map(|entries| &entries[within(cluster)]);
        // With what was written before the cluster was said to be there.
        entry.map_or(Mapped::Unknown, |entry| {
            Mapped::from_entry(entry.load(Ordering::Acquire))
        })
    }

    /// `cluster` is there from now on. It was nowhere, or its chunk is closed; or it becomes unknown, and requests that
    /// are on their way to where it was go on.
    pub fn set(&self, cluster: u64, mapped: Mapped) {
        let chunk = self.chunk(cluster / CLUSTERS);
        if chunk.number.load(Ordering::Relaxed) == cluster / CLUSTERS {
            let entries = chunk.entries.get_or_init(empty);
            entries[within(cluster)].store(mapped.entry(), Ordering::Release);
        }
    }

    /// Is the chunk of `cluster` kept?
    pub fn keeps(&self, cluster: u64) -> bool {
        self.chunk(cluster / CLUSTERS)
            .number
            .load(Ordering::Relaxed)
            == cluster / CLUSTERS
    }

    /// Keeps the chunk of `cluster` from now on, all of it unknown, in place of another; unless that is in use.
    pub fn keep(&self, cluster: u64) -> bool {
        let number = cluster / CLUSTERS;
        let chunk = self.chunk(number);
        let free = chunk
            .gate
            .compare_exchange(0, CLOSED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if free {
            for entry in chunk.entries.get_or_init(empty) {
                entry.store(0, Ordering::Relaxed);
            }
            chunk.number.store(number, Ordering::Relaxed);
            chunk.gate.fetch_and(!CLOSED, Ordering::Release);
        }
        free
    }

    /// Keeps nothing: all is looked up anew.
    pub fn forget(&self) {
        for chunk in &self.chunks {
            chunk.gate.fetch_or(CLOSED, Ordering::Relaxed);
            self.wait_until_empty(chunk);
            chunk.number.store(NO_CHUNK, Ordering::Relaxed);
            chunk.gate.fetch_and(!CLOSED, Ordering::Release);
        }
    }

    /// Closes the chunks of `clusters`, waits until none is inside, and keeps them closed for `body`.
    pub fn closed<T>(&self, clusters: RangeInclusive<u64>, body: impl FnOnce() -> T) -> T {
        let (first, last) = (clusters.start() / CLUSTERS, clusters.end() / CLUSTERS);
        // More chunks than there are mapped: every place once.
        let last = last.min(first + self.chunks.len() as u64 - 1);
        for number in first..=last {
            self.chunk(number).gate.fetch_or(CLOSED, Ordering::Relaxed);
        }
        for number in first..=last {
            self.wait_until_empty(self.chunk(number));
        }
        let told = body();
        for number in first..=last {
            self.chunk(number)
                .gate
                .fetch_and(!CLOSED, Ordering::Release);
        }
        told
    }

    fn wait_until_empty(&self, chunk: &Chunk) {
        let mut waiting = lock(&self.waiting);
        // With what those have done that were inside.
        while chunk.gate.load(Ordering::Acquire) != CLOSED {
            waiting = self
                .left
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn within(cluster: u64) -> usize {
    usize::try_from(cluster % CLUSTERS).expect("less than a chunk has")
}

fn empty() -> Box<[AtomicU64]> {
    (0..CLUSTERS).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(test)]
mod tests;
