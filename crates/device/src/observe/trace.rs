//! The last requests of a disk, noted one by one for some time.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

use pollux_stats::{Kind, Outcome};

use super::ended::{Ended, Extent, now_ns};

/// A trace: a ring that any number of queues write to, and that is read at any time.
///
/// An entry is written by the thread that has taken it, and no thread waits for one: a request that finds its entry
/// taken, because another worker was kept from running for a whole round, is not noted. A reader passes over an entry
/// that is written to while it reads.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    started: SystemTime,
    from_ns: u64,
    until_ns: u64,
    next: AtomicU64,
    entries: Box<[Entry]>,
}

/// A request that was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traced {
    /// How many were traced before it.
    pub number: u64,
    /// The queue that it came through.
    pub queue: u16,
    /// What it asked for.
    pub kind: Kind,
    /// How it ended.
    pub outcome: Outcome,
    /// What of the disk it was about.
    pub extent: Extent,
    /// When it was found in the ring, since the trace was started.
    pub found: Duration,
    /// How long it took from there.
    pub took: Duration,
}

#[derive(Debug, Default)]
struct Entry {
    /// The number of the request that is here, plus 1; 0: none is. `TAKEN`: it is being written.
    state: AtomicU64,
    found_ns: AtomicU64,
    took_ns: AtomicU64,
    at: AtomicU64,
    bytes: AtomicU64,
    /// Queue, kind and outcome.
    what: AtomicU64,
}

const TAKEN: u64 = u64::MAX;

impl Trace {
    pub(super) fn new(began: Instant, time: Duration, records: usize) -> Self {
        let from_ns = now_ns(began);
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            began,
            started: SystemTime::now(),
            from_ns,
            until_ns: from_ns.saturating_add(time),
            next: AtomicU64::new(0),
            entries: (0..records.max(1)).map(|_| Entry::default()).collect(),
        }
    }

    /// When it was started.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// For how long requests are traced.
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.until_ns - self.from_ns)
    }

    /// Are requests still traced?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over_at(now_ns(self.began))
    }

    /// How many it keeps.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// How many were traced, kept or not.
    #[must_use]
    pub fn traced(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// How many of those are kept; later ones have overwritten the others.
    #[must_use]
    pub fn kept(&self) -> u64 {
        let is_kept = |entry: &&Entry| entry.state.load(Ordering::Relaxed) > 0;
        self.entries.iter().filter(is_kept).count() as u64
    }

    /// Those that are kept, in the order in which they ended.
    #[must_use]
    pub fn records(&self) -> Vec<Traced> {
        let read = |entry: &Entry| entry.read(self.from_ns);
        let mut records: Vec<_> = self.entries.iter().filter_map(read).collect();
        records.sort_unstable_by_key(|traced| traced.number);
        records
    }

    pub(super) fn is_over_at(&self, now_ns: u64) -> bool {
        now_ns > self.until_ns
    }

    /// A request has ended that took so long. One that was found before the trace was started has no place in it.
    pub(super) fn note(&self, queue: u16, ended: &Ended, took_ns: u64) {
        if ended.found_ns < self.from_ns {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let at = number % self.entries.len() as u64;
        let entry = usize::try_from(at).ok().and_then(|at| self.entries.get(at));
        if let Some(entry) = entry {
            entry.write(number, queue, ended, took_ns);
        }
    }
}

impl Entry {
    fn write(&self, number: u64, queue: u16, ended: &Ended, took_ns: u64) {
        let before = self.state.load(Ordering::Relaxed);
        let take = |before| {
            let (taken, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            self.state
                .compare_exchange(before, TAKEN, taken, relaxed)
                .is_ok()
        };
        // A later one may be here already.
        if before > number || !take(before) {
            return;
        }
        // Pairs with the fence in `read`: a reader that sees any of what follows sees that the entry is taken.
        fence(Ordering::Release);
        let what = u64::from(queue) << 16 | (ended.kind as u64) << 8 | ended.outcome as u64;
        for (word, value) in [
            (&self.found_ns, ended.found_ns),
            (&self.took_ns, took_ns),
            (&self.at, ended.extent.at),
            (&self.bytes, ended.extent.bytes),
            (&self.what, what),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        self.state.store(number + 1, Ordering::Release);
    }

    fn read(&self, from_ns: u64) -> Option<Traced> {
        let state = self.state.load(Ordering::Acquire);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (found, took) = (load(&self.found_ns), load(&self.took_ns));
        let (at, bytes, what) = (load(&self.at), load(&self.bytes), load(&self.what));
        // Pairs with the fence in `write`.
        fence(Ordering::Acquire);
        let is_whole = state != TAKEN && self.state.load(Ordering::Relaxed) == state;
        let number = state.checked_sub(1).filter(|_| is_whole)?;
        Some(Traced {
            number,
            queue: u16::try_from(what >> 16).ok()?,
            kind: *Kind::ALL.get(usize::try_from(what >> 8 & 0xff).ok()?)?,
            outcome: *Outcome::ALL.get(usize::try_from(what & 0xff).ok()?)?,
            extent: Extent { at, bytes },
            found: Duration::from_nanos(found.saturating_sub(from_ns)),
            took: Duration::from_nanos(took),
        })
    }
}
