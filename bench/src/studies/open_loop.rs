//! An open loop: requests arrive at fixed times, whether or not those before them have ended, and latencies count from
//! the time that a request was due. So a stall counts for all requests that came due in it.

use std::hint;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pollux_disk::{Completion as Done, Failure};
use pollux_driver::{Channel, Waiter, Waiting};

use crate::cell::{BLOCK, Disk, Work};
use crate::client::{Buffers, Job, Lend, Own, on_its_way, token};
use crate::load::{Latencies, Offsets, latencies, record};

/// A client that sends each request when it is due.
pub struct OpenLoop<C = Channel, B = Buffers> {
    channel: C,
    waiter: Waiter,
    buffers: B,
    offsets: Offsets,
    /// Between two requests.
    period: Duration,
    /// When each request in flight was due.
    due: Vec<Option<Instant>>,
    /// Before a request is due, with none in flight, the client does not sleep any more for so long.
    awake: Duration,
    /// From when each was due until it was seen to have ended.
    pub latencies: Latencies,
}

/// The most requests in flight: what is due beyond waits.
const MOST: u16 = 64;

/// What such a client is to prepare.
pub const JOB: Job = Job {
    work: Work::RandRead,
    block: BLOCK,
    depth: MOST,
};

impl OpenLoop {
    /// On `socket`, where `disk` is, so many requests a second.
    pub fn connect(socket: &Path, disk: Disk, waiting: Waiting, rate: u32) -> io::Result<Self> {
        let client = Own::connect(socket, Waiter::new(waiting)?, JOB)?;
        Ok(Self::new(client, Offsets::of(disk, BLOCK), rate))
    }
}

impl<C: pollux_disk::Channel, B: Lend> OpenLoop<C, B> {
    /// By `client`, at `offsets`, so many requests a second.
    pub fn new(client: Own<C, B>, offsets: Offsets, rate: u32) -> Self {
        let (channel, waiter, buffers) = client.parts();
        Self {
            channel,
            waiter,
            buffers,
            offsets,
            period: Duration::from_secs(1) / rate,
            due: vec![None; MOST.into()],
            awake: Duration::ZERO,
            latencies: latencies(),
        }
    }

    /// The same, awake for so long before a request is due.
    pub fn awake_for(mut self, time: Duration) -> Self {
        self.awake = time;
        self
    }

    /// Sends requests for `time`, and waits until all have ended.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        let mut due = start;
        while due < start + time {
            self.wait_until(due)?;
            let free = loop {
                match self.due.iter().position(Option::is_none) {
                    Some(free) => break free,
                    None => self.reap(None)?,
                }
            };
            self.due[free] = Some(due);
            let request = self.buffers.request(free, self.offsets.next());
            on_its_way(self.channel.queue(request))?;
            self.channel.submit();
            self.look()?; // a client that is late does not wait, and must see what has ended all the same
            due += self.period;
        }
        while self.is_busy() {
            self.reap(None)?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.due.iter().any(Option::is_some)
    }

    /// Sleeps, or waits for what is in flight, until `due`.
    fn wait_until(&mut self, due: Instant) -> io::Result<()> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.is_busy() {
                self.reap(Some(left))?;
            } else if left > self.awake {
                thread::sleep(left.saturating_sub(self.awake));
            } else {
                hint::spin_loop();
            }
        }
    }

    /// Waits for at least one request.
    fn reap(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let Self { due, latencies, .. } = self;
        let mut ended = Ended::new(due, latencies);
        let note = &mut |done| ended.note(done);
        self.waiter.wait(&mut self.channel, timeout, note)?;
        ended.result()
    }

    /// Looks once.
    fn look(&mut self) -> io::Result<()> {
        let Self { due, latencies, .. } = self;
        let mut ended = Ended::new(due, latencies);
        self.channel.reap(&mut |done| ended.note(done));
        self.channel.submit();
        ended.result()
    }
}

/// Notes requests that have ended.
struct Ended<'a> {
    due: &'a mut [Option<Instant>],
    latencies: &'a mut Latencies,
    failure: Option<Failure>,
}

impl<'a> Ended<'a> {
    const fn new(due: &'a mut [Option<Instant>], latencies: &'a mut Latencies) -> Self {
        Self {
            due,
            latencies,
            failure: None,
        }
    }

    fn note(&mut self, done: Done) {
        self.failure = self.failure.or(done.result.err());
        if let Some(due) = self.due[token(done.ticket)].take() {
            record(due.elapsed(), self.latencies);
        }
    }

    fn result(self) -> io::Result<()> {
        self.failure
            .map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}
