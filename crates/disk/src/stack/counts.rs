//! What stacked disks count: how many queues were polled for how many requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_threads::lock;

/// What one channel counts. It has one writer, its owner.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counts {
    /// Requests that were split, or passed on whole.
    pub requests: Number,
    /// What they became.
    pub sub_requests: Number,
    /// Polls of a leg's queue.
    pub polls: Number,
    /// Of those, empty.
    pub empty_polls: Number,
}

/// A number with one writer at a time, which grows.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds `more`.
    #[inline]
    pub fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of all channels of a disk.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Channels>);

#[derive(Debug, Default)]
struct Channels {
    /// Those that are open.
    open: Vec<Arc<Counts>>,
    /// The sums of those that are not.
    closed: [u64; NAMES.len()],
}

const NAMES: [&str; 4] = [
    "requests",
    "sub-requests",
    "polls of legs",
    "empty polls of legs",
];

impl Counts {
    fn all(&self) -> [u64; NAMES.len()] {
        [
            &self.requests,
            &self.sub_requests,
            &self.polls,
            &self.empty_polls,
        ]
        .map(Number::get)
    }
}

impl Tally {
    /// What another channel counts into, until [`Tally::close`].
    pub fn open(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        lock(&self.0).open.push(Arc::clone(&counts));
        counts
    }

    /// That channel is closed.
    pub fn close(&self, counts: &Arc<Counts>) {
        let mut channels = lock(&self.0);
        channels.open.retain(|open| !Arc::ptr_eq(open, counts));
        for (sum, more) in channels.closed.iter_mut().zip(counts.all()) {
            *sum = sum.wrapping_add(more);
        }
    }

    /// All of it, by name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let channels = lock(&self.0);
        let mut sums = channels.closed;
        for counts in &channels.open {
            for (sum, more) in sums.iter_mut().zip(counts.all()) {
                *sum = sum.wrapping_add(more);
            }
        }
        NAMES.into_iter().zip(sums).collect()
    }
}
