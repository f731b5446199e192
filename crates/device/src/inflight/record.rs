//! One queue's part of the in-flight record: what is stored, in which order, and what a crash leaves.
//!
//! ```text
//!  0 features  u64       8 version u16    10 desc_num u16    12 last_batch_head u16    14 used_idx u16
//! 16 an entry for each descriptor:  inflight u8 · 5 bytes · next u16 · counter u64
//! ```
//! Numbers are in the machine's order. (QEMU, docs/interop/vhost-user.rst, *Inflight I/O tracking*.)
//!
//! **Order.** Taking a chain stores its `counter`, then `inflight = 1`. Publishing a batch
//!
//! 1. links its entries by `next` and points `last_batch_head` at the last of them,
//! 2. stores the used ring's index, by which the driver sees the completions,
//! 3. stores `inflight = 0` in each, and then `used_idx`.
//!
//! A process that is killed has made some first part of its stores in the order of its program and none of
//! the rest: the kernel stops threads between two instructions, and what they had stored is seen by
//! the process that runs after them. (That is all that is promised: a machine that crashes takes its guests along.) So
//! only the compiler must not exchange stores, and each of them is a release store.
//!
//! **Recovery.** Killed before 2, the driver has seen nothing of the batch, and `used_idx` is the used
//! ring's index: all of it is in flight and done again. After 2, the two differ by the batch's size until
//! the last store of 3: so many entries from `last_batch_head` on were seen by the driver, and are
//! cleared. Then `used_idx` is set, and what is still in flight is done again, in the order of the counters. Each store
//! of that leads to the same end when it is begun anew.
//!
//! **Where to go on.** What was taken is either in the used ring or in flight, so the next chain to take
//! is entry *used index + in flight* of the available ring. What was taken but not yet in flight is taken anew.
//!
//! **Flushes.** One that is done again covers, as ever, what had completed before it was queued: that had
//! been seen by the driver, so it is not in flight, and its data has reached the file. What is done again
//! beside the flush had not completed, so no driver was promised that the flush covers it. (The kernel tells of a
//! failed write-back once: of one that the daemon had heard of as it was killed, the flush that is done again hears
//! nothing.)
//!
//! The frontend may write to all of it at any moment. It is read once, here, and never again while the
//! queue runs; what is read is bounded by the size of the ring, and a lie costs only the liar.

use pollux_memory::Word;
use pollux_ring::{Head, RingIndex};

use super::error::{ALIGNMENT, RecordError};

const FEATURES: usize = 0;
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST_BATCH_HEAD: usize = 12;
const USED_IDX: usize = 14;
const FIRST: usize = 16;

const ENTRY_BYTES: usize = 16;
/// Within an entry.
const INFLIGHT: usize = 0;
const NEXT: usize = 6;
const COUNTER: usize = 8;

/// The version that these rules are; 0 is a record that was never written to.
const KNOWN_VERSION: u16 = 1;

/// How many bytes the part of a queue with `entries` entries takes.
pub fn area_bytes(entries: u16) -> usize {
    let alignment = usize::try_from(ALIGNMENT).expect("it is small");
    (FIRST + ENTRY_BYTES * usize::from(entries)).next_multiple_of(alignment)
}

/// Did a queue ever run on the part in `words`?
pub fn is_written(words: &impl Store) -> bool {
    u16::from_ne_bytes(words.load(VERSION)) != 0
}

/// Memory of one queue's part.
pub trait Store {
    /// Stores `word` at `at`, after all that was stored before.
    fn store<W: Word>(&self, at: usize, word: W);

    /// The bytes at `at`, read once.
    fn load<const N: usize>(&self, at: usize) -> [u8; N];
}

/// What a record is to be for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The queue's number.
    pub queue: u16,
    /// Entries that there is room for.
    pub entries: u16,
    /// Entries of the ring, no more than that.
    pub size: u16,
}

/// The record of one queue while it runs.
#[derive(Debug)]
pub struct Record<S> {
    words: S,
    /// Of the next chain that is taken.
    counter: u64,
    /// `last_batch_head` as we stored it last.
    last: Head,
    /// What is staged and not published.
    batch: Vec<Head>,
    /// What is to be done again, the first of them last.
    again: Vec<Head>,
}

/// Where the entry of `head` is.
#[inline]
fn entry(head: Head) -> usize {
    FIRST + ENTRY_BYTES * usize::from(head.0)
}

impl<S: Store> Record<S> {
    /// Opens the record in `words` for a queue whose used ring stands at `used`. If an earlier owner has
    /// written to it: also the entry of the available ring to go on with.
    ///
    /// # Errors
    ///
    /// When it holds what cannot be.
    pub fn open(
        words: S,
        shape: Shape,
        used: RingIndex,
    ) -> Result<(Self, Option<RingIndex>), RecordError> {
        let mut record = Self {
            words,
            counter: 0,
            last: Head(0),
            batch: Vec::with_capacity(shape.size.into()),
            again: Vec::new(),
        };
        if !is_written(&record.words) {
            record.begin(shape, used);
            return Ok((record, None));
        }
        record.is_known(shape)?;
        record.settle(shape, used);
        let in_flight = record.collect(shape)?;
        Ok((record, Some(used.plus(in_flight))))
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.words.load(at))
    }

    /// Writes a record of nothing in flight, and at last that it is one.
    fn begin(&self, shape: Shape, used: RingIndex) {
        for head in (0..shape.entries).map(Head) {
            self.words.store(entry(head) + INFLIGHT, 0u8);
        }
        self.words.store(FEATURES, 0u64);
        self.words.store(ENTRIES, shape.entries);
        self.words.store(LAST_BATCH_HEAD, self.last.0);
        self.words.store(USED_IDX, used.0);
        self.words.store(VERSION, KNOWN_VERSION);
    }

    fn is_known(&self, Shape { queue, entries, .. }: Shape) -> Result<(), RecordError> {
        let features = u64::from_ne_bytes(self.words.load(FEATURES));
        let (version, found) = (self.word(VERSION), self.word(ENTRIES));
        if (version, features, found) == (KNOWN_VERSION, 0, entries) {
            return Ok(());
        }
        Err(RecordError::Foreign {
            queue,
            version,
            features,
            found,
            entries,
        })
    }

    /// Clears the entries of a batch that the driver has seen.
    fn settle(&mut self, shape: Shape, used: RingIndex) {
        let behind = used.since(RingIndex(self.word(USED_IDX)));
        let mut head = self.word(LAST_BATCH_HEAD);
        self.last = Head(head);
        // A device that was reset by its driver is behind by any number, and has nothing in flight.
        for _ in 0..behind.min(shape.entries) {
            if head >= shape.entries {
                break;
            }
            let at = entry(Head(head));
            self.words.store(at + INFLIGHT, 0u8);
            head = self.word(at + NEXT);
        }
        self.words.store(USED_IDX, used.0);
    }

    /// Finds what is to be done again; tells how many there are.
    fn collect(&mut self, shape: Shape) -> Result<u16, RecordError> {
        let mut found = Vec::new();
        for head in (0..shape.entries).map(Head) {
            let at = entry(head);
            if self.words.load(at + INFLIGHT) != [1] {
                continue;
            }
            if head.0 >= shape.size {
                return Err(RecordError::Head {
                    queue: shape.queue,
                    head: head.0,
                    size: shape.size,
                });
            }
            found.push((u64::from_ne_bytes(self.words.load(at + COUNTER)), head));
        }
        found.sort_unstable_by_key(|(counter, head)| (*counter, head.0));
        self.counter = found.last().map_or(0, |(last, _)| last.wrapping_add(1));
        self.again = found.into_iter().rev().map(|(_, head)| head).collect();
        Ok(u16::try_from(self.again.len()).expect("no more than the ring is long"))
    }

    /// The chain at `head` was taken.
    #[inline]
    pub fn taken(&mut self, head: Head) {
        let at = entry(head);
        self.words.store(at + COUNTER, self.counter);
        self.words.store(at + INFLIGHT, 1u8);
        self.counter = self.counter.wrapping_add(1);
    }

    /// The chain at `head` was staged.
    #[inline]
    pub fn staged(&mut self, head: Head) {
        self.batch.push(head);
    }

    /// Lets `show` publish what was staged, which tells where the used ring stands then; `None` if that is not certain:
    /// all of it stays in flight, as if this process had been killed there.
    #[inline]
    pub fn publish<R>(&mut self, show: impl FnOnce() -> (R, Option<RingIndex>)) -> R {
        for head in &self.batch {
            self.words.store(entry(*head) + NEXT, self.last.0);
            self.last = *head;
        }
        self.words.store(LAST_BATCH_HEAD, self.last.0);
        let (shown, used) = show();
        let Some(used) = used else { return shown };
        for head in self.batch.drain(..) {
            self.words.store(entry(head) + INFLIGHT, 0u8);
        }
        self.words.store(USED_IDX, used.0);
        shown
    }

    /// How many chains are to be done again.
    #[inline]
    pub fn left(&self) -> usize {
        self.again.len()
    }

    /// The next of the chains that are to be done again: the one that was taken first.
    pub fn again(&mut self) -> Option<Head> {
        self.again.pop()
    }

    /// Nothing is done again: the ring is broken. In the record it stays in flight.
    pub fn give_up(&mut self) {
        self.again.clear();
    }
}
