//! What the client does: it keeps a queue full of 4 KiB requests at random offsets.
//!
//! The client limits what can be seen of a server, so its loop does nothing that it need not: no
//! allocation, no clock but once in 64 requests, a generator of a few instructions, buffers made
//! before. What costs more (a look at the clock for each batch) has a phase of its own.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use blkio::ReqFlags;
use hdrhistogram::Histogram;
use pollux_tests::client::{Client, Memory, Queue, Shape, Waiting};
use pollux_tests::random::Random;

use crate::cell::{BLOCK, Cell, Disk, Work};

/// A connection with its requests in flight.
pub struct Load {
    queue: Queue,
    memory: Memory,
    blocks: u64,
    work: Work,
    depth: usize,
    random: Random,
}

/// How long requests took, in nanoseconds.
pub type Latencies = Histogram<u64>;

impl Load {
    /// Connects to `socket` and submits the first requests of `cell`.
    pub fn start(socket: &Path, cell: Cell) -> io::Result<Self> {
        let shape = Shape {
            waiting: cell.client,
            ..Shape::blocking(1, queue_size(cell.depth))
        };
        let (client, mut queues) = Client::connect(socket, shape)?;
        let queue = queues.pop().expect("one queue was asked for");
        let depth = usize::from(cell.depth);
        let memory = client.memory(depth * BLOCK)?;
        memory.fill(0..memory.len(), 0xee); // so that no page is new to either side
        let mut load = Self {
            queue,
            memory,
            blocks: cell.disk.size() / BLOCK as u64,
            work: cell.work,
            depth,
            random: Random::new(1),
        };
        for token in 0..depth {
            load.submit(token);
        }
        Ok(load)
    }

    fn submit(&mut self, token: usize) {
        let offset = self.random.below(self.blocks) * BLOCK as u64;
        let range = token * BLOCK..(token + 1) * BLOCK;
        match self.work {
            Work::RandRead => self.queue.read(offset, &self.memory, range, token),
            Work::RandWrite => {
                let flags = ReqFlags::empty();
                self.queue.write(offset, &self.memory, range, token, flags);
            }
        }
    }

    /// Replaces every request that comes back by another for `time`, and counts them.
    pub fn run_for(&mut self, time: Duration) -> io::Result<u32> {
        let end = Instant::now() + time;
        let mut count = 0;
        let mut look_at_clock = 0;
        loop {
            self.queue.wait_for_ever(1)?;
            while let Some(done) = self.queue.take() {
                done.result?;
                self.submit(done.token);
                count += 1;
            }
            if count >= look_at_clock {
                look_at_clock = count + 64;
                if Instant::now() >= end {
                    return Ok(count);
                }
            }
        }
    }

    /// The same, and records how long each took: from the look that found its buffer free until the
    /// look that found it back. One look at the clock serves a whole batch for both.
    pub fn run_timed(&mut self, time: Duration) -> io::Result<Latencies> {
        const LONGEST_NS: u64 = 60_000_000_000;
        let mut latencies =
            Latencies::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds are valid");
        // Those in flight were submitted at a time that nobody noted.
        let mut submitted = vec![None; self.depth];
        let end = Instant::now() + time;
        loop {
            self.queue.wait_for_ever(1)?;
            let now = Instant::now();
            while let Some(done) = self.queue.take() {
                done.result?;
                if let Some(since) = submitted[done.token].replace(now) {
                    let took = now.saturating_duration_since(since).as_nanos();
                    latencies.saturating_record(u64::try_from(took).unwrap_or(LONGEST_NS));
                }
                self.submit(done.token);
            }
            if now >= end {
                return Ok(latencies);
            }
        }
    }

    /// Sends what was submitted, waits for all of it, and submits as many requests again.
    ///
    /// # Errors
    /// Also when that takes a minute.
    pub fn run_round(&mut self) -> io::Result<()> {
        self.queue.wait(self.depth)?;
        while let Some(done) = self.queue.take() {
            done.result?;
            self.submit(done.token);
        }
        Ok(())
    }

    /// Ends the connection with its requests in flight.
    pub fn abandon(self) {
        self.memory.abandon();
    }
}

/// Room for every request's three descriptors (header, data, status), and the 128 that guests use.
fn queue_size(depth: u16) -> u16 {
    (3 * depth).next_power_of_two().max(128)
}

/// Writes the whole of a memory disk once: memory that was never written would be read as zeroes
/// without being there.
pub fn fill(socket: &Path, disk: Disk) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    let shape = Shape {
        waiting: Waiting::Blocking,
        ..Shape::blocking(1, 128)
    };
    let (client, mut queues) = Client::connect(socket, shape)?;
    let memory = client.memory(STEP)?;
    let mut noise = vec![0; STEP];
    Random::new(1).fill(&mut noise);
    memory.put(0, &noise);
    for offset in (0..disk.size()).step_by(STEP) {
        queues[0].write(offset, &memory, 0..STEP, 0, ReqFlags::empty());
        queues[0].finish()??;
    }
    Ok(())
}
