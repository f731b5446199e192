//! Token buckets, as the time at which each will be full again: one word, so that threads can share it.
//!
//! A bucket that is full at time `full` lacks `full - now` worth of tokens. Taking moves `full` on. Requests are let
//! through while the bucket is not empty, and may overdraw it, so that one larger than the bucket has its turn as well.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Limited, Limits, Rate};

/// Parts of a second in which time is told here: small enough for the tokens of 2 GiB a second, and u64 holds 36 years.
pub const TICKS_PER_SECOND: u64 = 16_000_000_000;

/// Which way the data of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the disk.
    Read,
    /// To the disk; nothing comes of a discard.
    Write,
}

#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// What it may lack at most where a request is let through.
    tolerance: u64,
    full: AtomicU64,
    /// How far requests that wait have moved `full` on.
    reserved: AtomicU64,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        let per_second = rate.per_second.get();
        let burst = rate.burst.map_or(per_second / 50, u64::from).max(1);
        Self {
            per_second,
            tolerance: ticks(burst - 1, per_second).min(LARGEST),
            full: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
        }
    }

    /// As it is without the requests that wait.
    fn without_waiting(&self) -> Self {
        let full = self.full.load(Ordering::Relaxed);
        let reserved = self.reserved.load(Ordering::Relaxed);
        Self {
            per_second: self.per_second,
            tolerance: self.tolerance,
            full: AtomicU64::new(full.saturating_sub(reserved)),
            reserved: AtomicU64::new(0),
        }
    }

    /// When is a request let through?
    fn ready(&self) -> u64 {
        let full = self.full.load(Ordering::Relaxed);
        full.saturating_sub(self.tolerance)
    }

    fn take(&self, tokens: u64, now: u64) {
        let cost = self.cost(tokens);
        let moved = |full: u64| Some(full.max(now).saturating_add(cost));
        let _ = self
            .full
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
    }

    fn cost(&self, tokens: u64) -> u64 {
        ticks(tokens, self.per_second).min(DEAREST)
    }

    /// A request that takes its tokens waits.
    fn reserve(&self, tokens: u64) {
        self.reserved
            .fetch_add(self.cost(tokens), Ordering::Relaxed);
    }

    /// It waits no more.
    fn begin(&self, tokens: u64) {
        self.reserved
            .fetch_sub(self.cost(tokens), Ordering::Relaxed);
    }

    fn give_back(&self, tokens: u64) {
        self.begin(tokens);
        self.full.fetch_sub(self.cost(tokens), Ordering::Relaxed);
    }
}

const DAY: u64 = 24 * 3600 * TICKS_PER_SECOND;

/// What a request costs at most: so that all that wait at a time do not overflow.
const DEAREST: u64 = DAY;

/// The largest burst is what comes in ten years: time is told for longer than that.
const LARGEST: u64 = 3650 * DAY;

/// The time in which so many tokens come.
fn ticks(tokens: u64, per_second: u64) -> u64 {
    let ticks = u128::from(tokens) * u128::from(TICKS_PER_SECOND) / u128::from(per_second);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// One bucket for each limit.
#[derive(Debug)]
pub struct Buckets([Option<Bucket>; Limited::ALL.len()]);

impl Buckets {
    /// Full ones.
    pub fn new(limits: &Limits) -> Self {
        Self(Limited::ALL.map(|what| limits.get(what).map(Bucket::new)))
    }

    /// As these are without the requests that wait, if there are any.
    pub fn without_waiting(&self) -> Option<Self> {
        let mut all = self.0.iter().flatten();
        let waited_for = all.any(|bucket| bucket.reserved.load(Ordering::Relaxed) > 0);
        let each = |bucket: &Option<Bucket>| bucket.as_ref().map(Bucket::without_waiting);
        waited_for.then(|| Self(self.0.each_ref().map(each)))
    }

    /// Takes the tokens of a request over so many bytes, also where a bucket has none yet: so those that wait for the
    /// same bucket are let through in the order in which they came.
    ///
    /// # Errors
    ///
    /// When the request is to be let through, if not now. It waits until it is begun, or its tokens are given back.
    pub fn take(&self, flow: Flow, bytes: u64, now: u64) -> Result<(), u64> {
        let ready = self.concerned(flow, bytes).map(|(of, _)| of.ready()).max();
        let waits = ready.filter(|ready| *ready > now);
        for (bucket, tokens) in self.concerned(flow, bytes) {
            bucket.take(tokens, now);
            if waits.is_some() {
                bucket.reserve(tokens);
            }
        }
        waits.map_or(Ok(()), Err)
    }

    /// A request that waited is begun.
    pub fn begin(&self, flow: Flow, bytes: u64) {
        for (bucket, tokens) in self.concerned(flow, bytes) {
            bucket.begin(tokens);
        }
    }

    /// A request that waited is not begun.
    pub fn give_back(&self, flow: Flow, bytes: u64) {
        for (bucket, tokens) in self.concerned(flow, bytes) {
            bucket.give_back(tokens);
        }
    }

    /// The buckets from which a request takes tokens, and how many.
    fn concerned(&self, flow: Flow, bytes: u64) -> impl Iterator<Item = (&Bucket, u64)> {
        let (iops, bps) = match flow {
            Flow::Read => (Limited::IopsRead, Limited::BpsRead),
            Flow::Write => (Limited::IopsWrite, Limited::BpsWrite),
        };
        let each = [
            (Limited::IopsTotal, 1),
            (iops, 1),
            (Limited::BpsTotal, bytes),
            (bps, bytes),
        ];
        each.into_iter()
            .filter(|(_, tokens)| *tokens > 0)
            .filter_map(|(what, tokens)| Some((self.0[what as usize].as_ref()?, tokens)))
    }
}
