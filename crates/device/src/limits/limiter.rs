//! The limits of a disk as its queues ask for them: they may change while queues run, and several disks may share them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_threads::lock;

use super::Limits;
use super::bucket::{Buckets, Flow, TICKS_PER_SECOND};

/// The limits of a disk, or of several.
#[derive(Debug)]
pub struct Limiter {
    started: Instant,
    /// Moves on with each change.
    generation: AtomicU32,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    limits: Limits,
    buckets: Option<Arc<Buckets>>,
}

impl Default for Limiter {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            generation: AtomicU32::new(0),
            current: Mutex::default(),
        }
    }
}

impl Limiter {
    /// What limits there are.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.current().limits
    }

    /// Limits to this from now on. The same limits again change nothing; others begin with full buckets. A queue that
    /// waits learns of it when its worker wakes ([`Workers::wake`](crate::Workers::wake)).
    pub fn set(&self, limits: Limits) {
        let mut current = self.current();
        if current.limits == limits {
            return;
        }
        let buckets = (!limits.is_empty()).then(|| Arc::new(Buckets::new(&limits)));
        *current = Current { limits, buckets };
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Tokens of `buckets` were given back: those that wait take theirs anew. They learn of it as of a change.
    fn queue_anew(&self, buckets: &Arc<Buckets>) {
        let mut current = self.current();
        let is_current = |these: &Arc<Buckets>| Arc::ptr_eq(these, buckets);
        if current.buckets.as_ref().is_some_and(is_current)
            && let Some(without) = buckets.without_waiting()
        {
            current.buckets = Some(Arc::new(without));
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        lock(&self.current)
    }

    fn now(&self) -> u64 {
        let nanoseconds = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        nanoseconds.saturating_mul(TICKS_PER_SECOND / 1_000_000_000)
    }
}

fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks / (TICKS_PER_SECOND / 1_000_000_000))
}

/// The clock is asked in one of so many turns of a queue that waits while its worker is awake.
const READ_EVERY: u8 = 8;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is begun.
    Passes,
    /// It stays in the ring, and its queue waits.
    Waits,
}

/// The limits as one queue sees them.
#[derive(Debug)]
pub struct Throttle {
    limiter: Arc<Limiter>,
    generation: u32,
    /// `None`: nothing is limited.
    buckets: Option<Arc<Buckets>>,
    /// As of the last reading of the clock.
    now: u64,
    /// Until when the wait lasts that was begun last.
    wait: Option<u64>,
    /// The request that waits, or has waited and is next: its tokens were taken.
    paid: Option<(Flow, u64)>,
    /// So many turns may pass before the clock is asked.
    skips: u8,
}

impl Throttle {
    pub fn new(limiter: Arc<Limiter>) -> Self {
        let mut throttle = Self {
            limiter,
            generation: 0,
            buckets: None,
            now: 0,
            wait: None,
            paid: None,
            skips: 0,
        };
        throttle.reload();
        throttle
    }

    /// Does the queue wait? To be asked once a turn. A wait that is over is told to `ended`.
    #[inline]
    pub fn waits(&mut self, ended: impl FnOnce()) -> bool {
        if self.limiter.generation.load(Ordering::Relaxed) != self.generation {
            self.reload();
        }
        (self.buckets.is_some() || self.wait.is_some()) && self.still_waits(ended)
    }

    #[cold]
    fn reload(&mut self) {
        let current = self.limiter.current();
        // Under the lock: the generation of these buckets.
        self.generation = self.limiter.generation.load(Ordering::Relaxed);
        self.buckets.clone_from(&current.buckets);
        drop(current);
        self.paid = None;
        self.hurry();
        if let Some(until) = &mut self.wait {
            *until = 0;
        }
    }

    #[cold]
    fn still_waits(&mut self, ended: impl FnOnce()) -> bool {
        if self.wait.is_some() && self.skips > 0 {
            self.skips -= 1;
            return true;
        }
        self.now = self.limiter.now();
        match self.wait {
            Some(until) if until > self.now => {
                self.skips = READ_EVERY - 1;
                true
            }
            Some(_) => {
                self.wait = None;
                ended();
                false
            }
            None => false,
        }
    }

    /// Is anything limited?
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.buckets.is_some()
    }

    /// Was a wait begun that has not been found over?
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// May a request over so many bytes be begun now, when no wait lasts? One that may not begins a wait.
    #[cold]
    pub fn admits(&mut self, flow: Flow, bytes: u64) -> Verdict {
        let Some(buckets) = &self.buckets else {
            return Verdict::Passes;
        };
        match self.paid.take() {
            Some(paid) if paid == (flow, bytes) => {
                buckets.begin(flow, bytes);
                return Verdict::Passes;
            }
            // The driver has put another in its place.
            Some((flow, bytes)) => buckets.give_back(flow, bytes),
            None => {}
        }
        match buckets.take(flow, bytes, self.now) {
            Ok(()) => Verdict::Passes,
            Err(until) => {
                self.wait = Some(until);
                self.paid = Some((flow, bytes));
                self.skips = 0;
                Verdict::Waits
            }
        }
    }

    /// The worker is about to sleep, or its thread was elsewhere: the next turn asks the clock.
    pub fn hurry(&mut self) {
        self.skips = 0;
    }

    /// How long the queue goes on waiting; `None` if it does not.
    pub fn remains(&self) -> Option<Duration> {
        let until = self.wait?;
        // What is changed meanwhile is learned at once.
        if self.limiter.generation.load(Ordering::Relaxed) != self.generation {
            return Some(Duration::ZERO);
        }
        Some(duration(until.saturating_sub(self.limiter.now())))
    }
}

impl Drop for Throttle {
    /// The request that waits stays in the ring. What it was to take is for others, which wait behind it.
    fn drop(&mut self) {
        if let (Some(buckets), Some((flow, bytes))) = (&self.buckets, self.paid) {
            buckets.give_back(flow, bytes);
            self.limiter.queue_anew(buckets);
        }
    }
}
