//! One job: a thread that keeps requests in flight and notices their ends.
//!
//! Nothing here allocates per request, and the clock is read once for each batch of completions: the
//! same time ends the one request and begins the next.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pollux_disk::wait::Sleeper;

use crate::client::{Ask, Client};
use crate::latency::{Direction, Latencies};
use crate::plan::{Idle, Plan};
use crate::stop::{Live, Stop};
use crate::task::{Choice, Next, Task};
use crate::verify::{Mismatch, Model, Stamp, UNTOUCHED};

/// After so many empty polls with nothing in flight other threads may have the processor.
const YIELD_AFTER: u32 = 1024;
/// A wait with a timeout ends that early to see whether the job is to end.
const LONGEST_WAIT: Duration = Duration::from_millis(10);

/// Why a job ended before its time.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum JobError {
    /// A request failed.
    #[error("a {what} of {bytes} bytes at offset {offset} failed")]
    Request {
        what: &'static str,
        bytes: usize,
        offset: u64,
        source: io::Error,
    },
    /// A block does not hold what was written there.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The machine.
    #[error("cannot wait for completions")]
    Wait(#[source] io::Error),
    /// It cannot run where it shall.
    #[error("{0}")]
    Pin(String),
}

/// What a job may have in flight once.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// What it carries now; left as it is once that has ended.
    choice: Choice,
    /// What its block has to hold: the number of its write, or of the one that a read is to find.
    sequence: Option<u64>,
}

/// What a job needs to verify.
struct Verifier {
    model: Model,
    seed: u64,
    /// A copy: what the device can still write is never read in place.
    block: Vec<u8>,
}

/// One job.
pub struct Job<R> {
    /// What it does; its runtime and its rate may change between two tasks.
    pub plan: Plan,
    /// What it has measured.
    pub measured: Measured,
    client: R,
    /// Where it sleeps while nothing is in flight.
    idle: Sleeper,
    stop: Arc<Stop>,
    live: Arc<Live>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    verifier: Option<Verifier>,
    requests: u64,
}

/// What a job has come to.
#[derive(Debug, Default)]
pub struct Measured {
    /// How long requests took.
    pub latencies: Latencies,
    /// Blocks that were read and are what was written.
    pub checked: u64,
    /// Why the job ended, if that was too early.
    pub failed: Option<JobError>,
}

impl<R: Client> Job<R> {
    /// One that does what `plan` says by `client`, which has as many buffers of as many bytes.
    pub fn new(plan: Plan, client: R) -> io::Result<Self> {
        Self::watched(plan, client, Arc::default(), Arc::default())
    }

    /// The same, where `stop` ends it and `live` shows how far it is.
    pub fn watched(plan: Plan, client: R, stop: Arc<Stop>, live: Arc<Live>) -> io::Result<Self> {
        let idle = Sleeper::new()?;
        stop.wakes(idle.point());
        let empty = Slot {
            choice: Choice::NOTHING,
            sequence: None,
        };
        let verifier = |seed| Verifier {
            model: Model::new(plan.pattern.blocks()),
            seed,
            block: vec![0; plan.bytes],
        };
        Ok(Self {
            client,
            idle,
            stop,
            live,
            slots: vec![empty; plan.depth],
            // The one used last is the one whose memory is in the cache.
            free: (0..plan.depth).rev().collect(),
            verifier: plan.verify.map(verifier),
            requests: 0,
            measured: Measured::default(),
            plan,
        })
    }

    /// Works for `time` by its plan, and begins to measure anew.
    ///
    /// # Errors
    ///
    /// That of the first request that failed.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.plan.runtime = time;
        self.measured = Measured::default();
        let mut task = Task::run(&self.plan);
        self.work(&mut task);
        let failed = self.measured.failed.take();
        failed.map_or(Ok(()), |error| Err(io::Error::other(error)))
    }

    /// Works until `task` is over and nothing is in flight, and says how long that took. After an
    /// error, which is in what it has measured, it does nothing any more.
    pub fn work(&mut self, task: &mut Task) -> Duration {
        let start = Instant::now();
        let mut now = 0;
        loop {
            let next = self.start_all(task, now);
            if self.wait(start, now, next).is_break() {
                return start.elapsed();
            }
            now = nanoseconds(start.elapsed());
            self.finish_all(task, now);
        }
    }

    /// Its client.
    pub fn client(&mut self) -> &mut R {
        &mut self.client
    }

    /// Starts what is to start at `now`, as far as there is room; when is the next?
    #[inline]
    fn start_all(&mut self, task: &mut Task, now: u64) -> Option<Next> {
        while let Some(&slot) = self.free.last() {
            let model = self.verifier.as_mut().map(|verifier| &mut verifier.model);
            let next = match self.measured.failed {
                Some(_) => Next::Over,
                None => task.next(now, &self.stop.asked, model),
            };
            let Next::Start(choice) = next else {
                return Some(next);
            };
            self.free.pop();
            if self.plan.rate.is_some() && task.is_measured() {
                let late = now.saturating_sub(choice.since);
                self.measured.latencies.started(choice.direction, late);
            }
            self.start(slot, choice);
        }
        None
    }

    #[inline]
    fn start(&mut self, number: usize, choice: Choice) {
        let offset = self.offset(choice);
        let slot = &mut self.slots[number];
        slot.choice = choice;
        if let Some(verifier) = &mut self.verifier {
            slot.sequence = verifier.prepare(&mut self.client, number, choice, offset);
        }
        let ask = Ask {
            direction: choice.direction,
            offset,
            completion: choice.completion,
        };
        self.client.queue(number, ask);
    }

    #[inline]
    fn offset(&self, choice: Choice) -> u64 {
        self.plan.begin + choice.block as u64 * self.plan.bytes as u64
    }

    /// Sends what was queued, and waits until something has ended or is to start. It breaks off when neither is to
    /// come.
    #[inline]
    fn wait(&mut self, start: Instant, now: u64, next: Option<Next>) -> ControlFlow<()> {
        let left = match next {
            Some(Next::Later(due)) => Some(Duration::from_nanos(due.saturating_sub(now))),
            _ => None,
        };
        if self.free.len() < self.plan.depth {
            let timeout = left.map(|left| left.min(LONGEST_WAIT));
            match self.client.wait(1, timeout) {
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                    self.fail(JobError::Wait(error));
                }
                _ => {}
            }
            return ControlFlow::Continue(());
        }
        let Some(left) = left else {
            return ControlFlow::Break(());
        };
        match self.plan.idle {
            Idle::Sleep(awake) if left > awake => self.sleep(left.saturating_sub(awake)),
            Idle::Sleep(_) | Idle::Poll => self.poll_until(start, now + nanoseconds(left)),
        }
        ControlFlow::Continue(())
    }

    fn sleep(&mut self, time: Duration) {
        self.idle.arm();
        if self.stop.asked.load(Ordering::Relaxed) {
            return self.idle.disarm();
        }
        if let Err(error) = self.idle.sleep(Some(time), |_| ()) {
            self.fail(JobError::Wait(error));
        }
    }

    fn poll_until(&self, start: Instant, due: u64) {
        for poll in 1u32.. {
            if nanoseconds(start.elapsed()) >= due || self.stop.asked.load(Ordering::Relaxed) {
                return;
            }
            if poll % YIELD_AFTER == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    #[inline]
    fn finish_all(&mut self, task: &Task, now: u64) {
        while let Some((number, result)) = self.client.take() {
            if let Err(error) = self.finish(task, number, result, now) {
                self.fail(error);
            }
            self.free.push(number);
        }
        self.live.0.store(self.requests, Ordering::Relaxed);
    }

    #[inline]
    fn finish(
        &mut self,
        task: &Task,
        number: usize,
        result: io::Result<()>,
        now: u64,
    ) -> Result<(), JobError> {
        let slot = self.slots[number];
        let choice = slot.choice;
        let offset = self.offset(choice);
        result.map_err(|source| JobError::Request {
            what: match choice.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            bytes: self.plan.bytes,
            offset,
            source,
        })?;
        self.requests += 1;
        let Measured {
            latencies, checked, ..
        } = &mut self.measured;
        if task.is_measured() {
            let ns = now.saturating_sub(choice.since);
            latencies.ended(choice.direction, choice.completion, ns);
        }
        if let Some(verifier) = &mut self.verifier
            && verifier.finish(&self.client, number, slot, offset)?
        {
            *checked += 1;
        }
        Ok(())
    }

    /// The first error counts; it ends the other jobs, too.
    #[cold]
    pub fn fail(&mut self, error: JobError) {
        self.measured.failed.get_or_insert(error);
        self.stop.ask();
    }
}

impl Verifier {
    /// Before a request for the block at `offset`: which write is it, or has it to find?
    fn prepare(
        &mut self,
        client: &mut impl Client,
        slot: usize,
        choice: Choice,
        offset: u64,
    ) -> Option<u64> {
        if choice.direction == Direction::Read {
            let sequence = self.model.holds(choice.block)?;
            self.block.fill(UNTOUCHED);
            client.put(slot, &self.block);
            return Some(sequence);
        }
        let stamp = Stamp {
            offset,
            sequence: self.model.next_write(),
            seed: self.seed,
        };
        stamp.fill(&mut self.block);
        client.put(slot, &self.block);
        Some(stamp.sequence)
    }

    /// A request has ended well: was its block checked?
    fn finish(
        &mut self,
        client: &impl Client,
        number: usize,
        slot: Slot,
        offset: u64,
    ) -> Result<bool, Mismatch> {
        let Choice {
            direction, block, ..
        } = slot.choice;
        if direction == Direction::Write {
            self.model.release(block, slot.sequence);
            return Ok(false);
        }
        self.model.release(block, None);
        // What this run has not written may hold anything.
        let Some(sequence) = slot.sequence else {
            return Ok(false);
        };
        let stamp = Stamp {
            offset,
            sequence,
            seed: self.seed,
        };
        client.get(number, &mut self.block);
        stamp.check(&self.block)?;
        Ok(true)
    }
}

/// In a word: six centuries.
pub fn nanoseconds(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}
