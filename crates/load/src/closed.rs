//! A closed loop that costs its client as little as can be.
//!
//! Where the client limits what can be seen of a server, its loop does nothing that it need not: no allocation, no
//! clock but once in 64 requests, a generator of a few instructions, buffers made before. What costs more, reading
//! the clock for each batch, has functions of its own.

use std::io;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::job::nanoseconds;
use crate::latency::{Histogram, histogram};
use crate::pattern::Pattern;

/// A connection with its requests in flight.
pub struct Closed<R> {
    client: R,
    pattern: Pattern,
    bytes: usize,
    depth: usize,
}

/// Times the requests of one load.
pub struct Timer {
    /// When each request in flight was sent, if that was noted.
    submitted: Vec<Option<Instant>>,
    /// How long those took that have come back.
    pub latencies: Histogram,
}

impl<R: Client> Closed<R> {
    /// Queues nothing yet: for [`Closed::begin`] and [`Closed::exchange`].
    pub fn new(client: R, pattern: Pattern, depth: usize, bytes: usize) -> Self {
        Self {
            client,
            pattern,
            bytes,
            depth,
        }
    }

    /// Queues as many requests as there may be, with none in flight.
    pub fn begin(&mut self) {
        (0..self.depth).for_each(|slot| self.queue(slot));
    }

    #[inline]
    fn queue(&mut self, slot: usize) {
        let ask = self.pattern.ask(self.bytes);
        self.client.queue(slot, ask);
    }

    /// The next request that came back in the last wait.
    #[inline]
    fn take(&mut self) -> io::Result<Option<usize>> {
        let Some((slot, result)) = self.client.take() else {
            return Ok(None);
        };
        result?;
        Ok(Some(slot))
    }

    /// Replaces every request that comes back by another for `time`, and counts them.
    pub fn run_for(&mut self, time: Duration) -> io::Result<u32> {
        let end = Instant::now() + time;
        let mut count = 0;
        let mut read_clock_at = 0;
        loop {
            count += self.turn(1)?;
            if count >= read_clock_at {
                read_clock_at = count + 64;
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
        self.client.wait(at_least, None)?;
        let mut count = 0;
        while let Some(slot) = self.take()? {
            self.queue(slot);
            count += 1;
        }
        Ok(count)
    }

    /// The same as [`Closed::run_for`], and records how long each took: from the poll that found its
    /// buffer free until the poll that found it back. One reading of the clock serves a whole batch for
    /// both.
    pub fn run_timed(&mut self, time: Duration) -> io::Result<Histogram> {
        let mut timer = self.timer();
        let end = Instant::now() + time;
        while self.turn_timed(1, &mut timer)? < end {}
        Ok(timer.latencies)
    }

    /// For [`Closed::turn_timed`].
    pub fn timer(&self) -> Timer {
        Timer {
            // Those in flight were submitted at a time that was not noted.
            submitted: vec![None; self.depth],
            latencies: histogram(),
        }
    }

    /// A turn whose requests are timed; returns when that was.
    pub fn turn_timed(&mut self, at_least: usize, timer: &mut Timer) -> io::Result<Instant> {
        self.client.wait(at_least, None)?;
        let now = Instant::now();
        while let Some(slot) = self.take()? {
            if let Some(since) = timer.submitted[slot].replace(now) {
                let took = nanoseconds(now.saturating_duration_since(since));
                timer.latencies.saturating_record(took);
            }
            self.queue(slot);
        }
        Ok(now)
    }

    /// Sends what was queued, waits for all of it, and queues as many requests again.
    ///
    /// # Errors
    ///
    /// Also when that takes a minute.
    pub fn run_round(&mut self) -> io::Result<()> {
        self.finish()?;
        self.begin();
        Ok(())
    }

    /// Sends what was queued, and waits for all of it.
    ///
    /// # Errors
    ///
    /// Also when that takes a minute.
    pub fn finish(&mut self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        self.client.wait(self.depth, Some(PATIENCE))?;
        while self.take()?.is_some() {}
        Ok(())
    }

    /// Sends the requests of `batch`.
    pub fn send(&mut self, batch: &[usize]) -> io::Result<()> {
        for slot in batch {
            self.queue(*slot);
        }
        self.client.wait(0, None)
    }

    /// Sends the requests of `batch`, which becomes those that have come back.
    #[inline]
    pub fn exchange(&mut self, batch: &mut Vec<usize>) -> io::Result<()> {
        batch.drain(..).for_each(|slot| self.queue(slot));
        self.client.wait(1, None)?;
        while let Some(slot) = self.take()? {
            batch.push(slot);
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
        self.client.end(in_flight)
    }
}
