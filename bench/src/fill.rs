//! What a client does: it keeps a queue full of requests at random offsets.
//!
//! The client limits what can be seen of a server, so its loop does nothing that it need not: no
//! allocation, no clock but once in 64 requests, a generator of a few instructions, buffers made
//! before. What costs more (reading the clock for each batch) has a phase of its own.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pollux_disk::Durability;
use pollux_driver::{Completion, Driver, Options};
use pollux_tests::random::Random;

use crate::cell::{Disk, Work};
use crate::client::{Job, Requests};

/// A connection with its requests in flight.
pub struct Load<R> {
    requests: R,
    offsets: Offsets,
    depth: usize,
}

/// Where requests go: the same places for every client.
pub struct Offsets {
    blocks: u64,
    block: u64,
    order: Order,
}

/// Which block is the next.
enum Order {
    Random(Random),
    /// This one, then the one after it.
    Sequential(u64),
}

impl Offsets {
    /// In whole blocks of `disk`.
    pub fn of(disk: Disk, block: usize) -> Self {
        Self::seeded(disk, block, 1)
    }

    /// The same, other ones with each seed.
    pub fn seeded(disk: Disk, block: usize, seed: u64) -> Self {
        Self::within(disk.size(), block, seed)
    }

    /// The same in the first `bytes` of any disk.
    pub fn within(bytes: u64, block: usize, seed: u64) -> Self {
        let block = block as u64;
        Self {
            blocks: bytes / block,
            block,
            order: Order::Random(Random::new(seed)),
        }
    }

    /// One block of `disk` after the other.
    pub fn in_order(disk: Disk, block: usize) -> Self {
        Self {
            order: Order::Sequential(0),
            ..Self::of(disk, block)
        }
    }

    /// In whole blocks of `disk`, in the order that `job` asks for.
    fn for_job(disk: Disk, job: Job, seed: u64) -> Self {
        match job.work {
            Work::RandRead | Work::RandWrite => Self::seeded(disk, job.block, seed),
            Work::Read => Self::in_order(disk, job.block),
        }
    }

    /// The next one.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let block = match &mut self.order {
            Order::Random(random) => random.below(self.blocks),
            Order::Sequential(next) => {
                let block = *next;
                *next = (block + 1) % self.blocks;
                block
            }
        };
        block * self.block
    }
}

/// How long requests took, in nanoseconds.
pub type Latencies = Histogram<u64>;

const LONGEST_NS: u64 = 60_000_000_000;

/// Nothing recorded yet: up to a minute, to three digits.
pub fn latencies() -> Latencies {
    Latencies::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds are valid")
}

/// Which time so many of them did not exceed.
#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
pub fn microseconds(latencies: &Latencies, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// Adds one.
#[inline]
pub fn record(took: Duration, latencies: &mut Latencies) {
    latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST_NS));
}

/// Times the requests of one load.
pub struct Timer {
    /// When each request in flight was sent, if that was noted.
    submitted: Vec<Option<Instant>>,
    /// How long those took that have come back.
    pub latencies: Latencies,
}

impl<R: Requests> Load<R> {
    /// Queues the first requests of `job`.
    pub fn start(requests: R, disk: Disk, job: Job) -> Self {
        Self::seeded(requests, disk, job, 1)
    }

    /// The same, at other offsets with each seed.
    pub fn seeded(requests: R, disk: Disk, job: Job, seed: u64) -> Self {
        let mut load = Self::new(requests, disk, job);
        load.offsets = Offsets::for_job(disk, job, seed);
        load.begin();
        load
    }

    /// Queues nothing yet: for [`Load::begin`] and [`Load::exchange`].
    pub fn new(requests: R, disk: Disk, job: Job) -> Self {
        Self {
            requests,
            offsets: Offsets::for_job(disk, job, 1),
            depth: usize::from(job.depth),
        }
    }

    /// Queues as many requests as there may be, with none in flight.
    pub fn begin(&mut self) {
        (0..self.depth).for_each(|token| self.queue(token));
    }

    #[inline]
    fn queue(&mut self, token: usize) {
        let offset = self.offsets.next();
        self.requests.queue(token, offset);
    }

    /// Replaces every request that comes back by another for `time`, and counts them.
    pub fn run_for(&mut self, time: Duration) -> io::Result<u32> {
        let end = Instant::now() + time;
        let mut count = 0;
        let mut look_at_clock = 0;
        loop {
            count += self.turn(1)?;
            if count >= look_at_clock {
                look_at_clock = count + 64;
                if Instant::now() >= end {
                    return Ok(count);
                }
            }
        }
    }

    /// Sends what was queued, waits for so many requests at least, and queues another for each that has
    /// come back; returns how many.
    #[inline]
    pub fn turn(&mut self, at_least: usize) -> io::Result<u32> {
        self.requests.wait(at_least, None)?;
        let mut count = 0;
        while let Some(token) = self.requests.take() {
            self.queue(token?);
            count += 1;
        }
        Ok(count)
    }

    /// The same as [`Load::run_for`], and records how long each took: from the poll that found its
    /// buffer free until the poll that found it back. One reading of the clock serves a whole batch for
    /// both.
    pub fn run_timed(&mut self, time: Duration) -> io::Result<Latencies> {
        let mut timer = self.timer();
        let end = Instant::now() + time;
        while self.turn_timed(1, &mut timer)? < end {}
        Ok(timer.latencies)
    }

    /// For [`Load::turn_timed`].
    pub fn timer(&self) -> Timer {
        Timer {
            // Those in flight were submitted at a time that nobody noted.
            submitted: vec![None; self.depth],
            latencies: latencies(),
        }
    }

    /// A turn whose requests are timed; returns when that was.
    pub fn turn_timed(&mut self, at_least: usize, timer: &mut Timer) -> io::Result<Instant> {
        self.requests.wait(at_least, None)?;
        let now = Instant::now();
        while let Some(token) = self.requests.take() {
            let token = token?;
            if let Some(since) = timer.submitted[token].replace(now) {
                record(now.saturating_duration_since(since), &mut timer.latencies);
            }
            self.queue(token);
        }
        Ok(now)
    }

    /// Sends what was queued, waits for all of it, and queues as many requests again.
    ///
    /// # Errors
    /// Also when that takes a minute.
    pub fn run_round(&mut self) -> io::Result<()> {
        self.wait_for_all()?;
        while let Some(token) = self.requests.take() {
            self.queue(token?);
        }
        Ok(())
    }

    /// Sends what was queued, and waits for all of it.
    ///
    /// # Errors
    /// Also when that takes a minute.
    pub fn finish(&mut self) -> io::Result<()> {
        self.wait_for_all()?;
        while let Some(token) = self.requests.take() {
            token?;
        }
        Ok(())
    }

    fn wait_for_all(&mut self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        self.requests.wait(self.depth, Some(PATIENCE))
    }

    /// Sends the requests of `batch`.
    pub fn send(&mut self, batch: &[usize]) -> io::Result<()> {
        for token in batch {
            self.queue(*token);
        }
        self.requests.wait(0, None)
    }

    /// Sends the requests of `batch`, which becomes those that have come back.
    #[inline]
    pub fn exchange(&mut self, batch: &mut Vec<usize>) -> io::Result<()> {
        batch.drain(..).for_each(|token| self.queue(token));
        self.requests.wait(1, None)?;
        while let Some(token) = self.requests.take() {
            batch.push(token?);
        }
        Ok(())
    }

    /// Ends the connection with its requests in flight.
    pub fn end(self) -> io::Result<()> {
        let depth = self.depth;
        self.end_with(depth)
    }

    /// Ends the connection with so many requests in flight.
    pub fn end_with(self, in_flight: usize) -> io::Result<()> {
        self.requests.end(in_flight)
    }
}

/// Writes the whole of a memory disk once: memory that was never written would be read as zeroes
/// without being there. By our driver, which every server takes as a client.
pub fn fill(socket: &Path, disk: Disk) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    let driver = Driver::connect(socket, &Options::default()).map_err(io::Error::other)?;
    let mut buffer = driver.allocate(STEP)?;
    let mut noise = vec![0; STEP];
    Random::new(1).fill(&mut noise);
    buffer.write(0, &noise);
    let queue = driver.queue(0)?;
    for offset in (0..disk.size()).step_by(STEP) {
        let pending = queue.write(offset, buffer, Durability::Volatile, Completion::Polled);
        buffer = pending.wait().map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_after_the_other_begin_again_at_the_end() {
        let job = Job {
            work: Work::Read,
            block: 1 << 30,
            depth: 1,
        };
        let mut offsets = Offsets::for_job(Disk::Null, job, 1);
        assert_eq!([(); 3].map(|()| offsets.next()), [0, 1 << 30, 0]);
    }

    #[test]
    fn each_seed_has_offsets_of_its_own_within_the_disk() {
        let of_seed = |seed| {
            let mut offsets = Offsets::seeded(Disk::Memory, 4096, seed);
            [(); 64].map(|()| offsets.next())
        };
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
        let inside = |at: &u64| at.is_multiple_of(4096) && *at < Disk::Memory.size();
        assert!(of_seed(3).iter().all(inside));
    }
}
