//! One job: a thread that keeps requests in flight and notices their ends.
//!
//! Nothing here allocates per request, and the clock is read once for each batch of completions: the
//! same time ends the one request and begins the next.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pollux::disk::wait::Sleeper;
use pollux::disk::{Completion as Ended, Durability, Failure, Op, Queued, Request, Ticket};
use pollux::driver::{Completion, Counters, Hybrid, Waiter};
use pollux::memory::{Loan, Span};

use super::latency::{Direction, Latencies};
use super::load::{Choice, Next, Task};
use super::options::Waiting;
use super::plan::{Mix, Plan};
use super::stop::Stop;
use super::verify::{Mismatch, Model, Stamp, UNTOUCHED};

/// After so many looks in vain, some 20 µs, whoever else wants the processor may have it: where there are
/// more pollers than processors, the server is among those who want it.
const POLITE: u32 = 1024;

/// Why a job ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A request failed.
    #[error("a {what} of {bytes} bytes at offset {offset} failed")]
    Request {
        what: &'static str,
        bytes: usize,
        offset: u64,
        source: Failure,
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
#[derive(Debug)]
struct Slot {
    span: Span,
    loan: Loan,
    /// What it carries now; left as it is once that has ended.
    choice: Choice,
    /// What its block has to hold: the number of its write, or of the one that a read is to find.
    sequence: Option<u64>,
}

/// What a job needs to verify.
struct Verifier {
    model: Model,
    seed: u64,
    /// A copy: what the device can still write is never looked at in place.
    block: Vec<u8>,
    checked: u64,
}

/// What a job works with.
pub struct Lane<C> {
    pub channel: C,
    /// Where it sleeps over requests in flight.
    pub waiter: Waiter,
    /// Memory that the device can reach, for all of its slots.
    pub memory: Span,
}

/// One job.
pub struct Job<'a, C> {
    plan: &'a Plan,
    /// Where its part of the disk begins.
    begin: u64,
    channel: C,
    waiter: Waiter,
    /// Where it sleeps while nothing is in flight.
    idle: Sleeper,
    stop: &'a Stop,
    slots: Vec<Slot>,
    free: Vec<usize>,
    ended: Vec<Ended>,
    polled_in_flight: usize,
    verifier: Option<Verifier>,
    failed: Option<JobError>,
    latencies: Latencies,
    requests: u64,
    /// How many requests have ended, for whoever watches.
    live: &'a AtomicU64,
}

impl<'a, C: Hybrid> Job<'a, C> {
    /// Job number `number` of `plan`.
    pub fn new(
        plan: &'a Plan,
        number: u16,
        lane: Lane<C>,
        seed: u64,
        stop: &'a Stop,
        live: &'a AtomicU64,
    ) -> io::Result<Self> {
        let idle = Sleeper::new()?;
        stop.wakes(idle.point());
        let slot = |slot: usize| {
            let span = lane.memory.slice(slot * plan.bytes, plan.bytes);
            let span = span.expect("there is memory for every slot");
            Slot {
                span,
                loan: Loan::first(&[span], plan.bytes as u64),
                choice: Choice::NOTHING,
                sequence: None,
            }
        };
        let part = plan.blocks as u64 * plan.bytes as u64;
        Ok(Self {
            plan,
            begin: u64::from(number) * part,
            idle,
            stop,
            slots: (0..plan.depth).map(slot).collect(),
            channel: lane.channel,
            waiter: lane.waiter,
            // The one used last is the one whose memory is in the cache.
            free: (0..plan.depth).rev().collect(),
            ended: Vec::with_capacity(plan.depth),
            polled_in_flight: 0,
            verifier: plan.verify.then(|| Verifier {
                model: Model::new(plan.blocks),
                seed,
                block: vec![0; plan.bytes],
                checked: 0,
            }),
            failed: None,
            latencies: Latencies::new(),
            requests: 0,
            live,
        })
    }

    /// Works until `task` is over and nothing is in flight, and says how long that took. After an
    /// error, which [`Job::end`] tells, it does nothing any more.
    pub fn work(&mut self, task: &mut Task) -> Duration {
        let start = Instant::now();
        let mut now = 0;
        loop {
            let next = self.start_all(task, now);
            self.channel.submit();
            if self.ended.is_empty() && self.wait(start, now, next).is_break() {
                return start.elapsed();
            }
            now = nanoseconds(start.elapsed());
            self.finish_all(task, now);
        }
    }

    /// What it has counted and measured, and why it ended, if that was too early.
    pub fn end(self) -> (Latencies, u64, Option<JobError>) {
        for slot in self.slots {
            slot.loan.end();
        }
        let checked = self.verifier.map_or(0, |verifier| verifier.checked);
        (self.latencies, checked, self.failed)
    }

    /// What its channel has counted.
    pub fn counters(&mut self) -> Counters {
        self.channel.counters()
    }

    fn in_flight(&self) -> usize {
        self.plan.depth - self.free.len()
    }

    /// Starts what is to start at `now`, as far as there is room; when is the next?
    #[inline]
    fn start_all(&mut self, task: &mut Task, now: u64) -> Option<Next> {
        while let Some(&slot) = self.free.last() {
            let model = self.verifier.as_mut().map(|verifier| &mut verifier.model);
            let next = match self.failed {
                Some(_) => Next::Over,
                None => task.next(now, &self.stop.asked, model),
            };
            let Next::Start(choice) = next else {
                return Some(next);
            };
            self.free.pop();
            if self.plan.rate.is_some() && task.is_measured() {
                let late = now.saturating_sub(choice.since);
                self.latencies.started(choice.direction, late);
            }
            self.start(slot, choice);
        }
        None
    }

    #[inline]
    fn start(&mut self, number: usize, choice: Choice) {
        let at = self.begin + choice.block as u64 * self.plan.bytes as u64;
        let slot = &mut self.slots[number];
        slot.choice = choice;
        if let Some(verifier) = &mut self.verifier {
            slot.sequence = verifier.prepare(slot.span, choice, at);
        }
        // SAFETY: the slot keeps the loan, and `Job::end` comes when nothing is in flight.
        let spans = unsafe { slot.loan.spans() };
        let op = match choice.direction {
            Direction::Read => Op::Read { at, into: spans },
            Direction::Write => Op::Write {
                at,
                from: spans,
                durability: Durability::Volatile,
            },
        };
        let ticket = Ticket(number as u64);
        self.polled_in_flight += usize::from(choice.completion == Completion::Polled);
        let request = Request { ticket, op };
        if let Queued::Done(result) = self.channel.queue_as(request, choice.completion) {
            self.ended.push(Ended { ticket, result });
        }
    }

    /// Waits until something has ended or is to start. It breaks off when neither is to come.
    #[inline]
    fn wait(&mut self, start: Instant, now: u64, next: Option<Next>) -> ControlFlow<()> {
        let until = match next {
            Some(Next::Later(due)) => Some(due),
            _ => None,
        };
        let looking = match self.plan.mix {
            Mix::All(waiting) => waiting == Waiting::Polled,
            Mix::Hipri(_) => self.polled_in_flight > 0,
        };
        match (self.in_flight(), until) {
            (0, None) => return ControlFlow::Break(()),
            (0, Some(due)) if !looking => self.idle_until(due.saturating_sub(now)),
            (_, until) if looking => self.look_until(start, until),
            (_, until) => {
                let timeout = until.map(|due| Duration::from_nanos(due.saturating_sub(now)));
                let ended = &mut self.ended;
                let mut done = |done| ended.push(done);
                if let Err(error) = self.waiter.wait(&mut self.channel, timeout, &mut done) {
                    self.fail(JobError::Wait(error));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn idle_until(&mut self, ns: u64) {
        self.idle.arm();
        if self.stop.asked.load(Ordering::Relaxed) {
            return self.idle.disarm();
        }
        let timeout = Some(Duration::from_nanos(ns));
        if let Err(error) = self.idle.sleep(timeout, |_| ()) {
            self.fail(JobError::Wait(error));
        }
    }

    /// Looks without a pause. The clock is read only where there is a time to look for.
    #[inline]
    fn look_until(&mut self, start: Instant, until: Option<u64>) {
        for look in 1u32.. {
            let ended = &mut self.ended;
            self.channel.reap(&mut |done| ended.push(done));
            if !self.ended.is_empty() {
                return;
            }
            self.channel.submit();
            if let Some(due) = until
                && (nanoseconds(start.elapsed()) >= due || self.stop.asked.load(Ordering::Relaxed))
            {
                return;
            }
            if look % POLITE == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    #[inline]
    fn finish_all(&mut self, task: &Task, now: u64) {
        if self.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        for done in ended.drain(..) {
            let number = usize::try_from(done.ticket.0).expect("tickets are numbers of slots");
            if let Err(error) = self.finish(task, number, done.result, now) {
                self.fail(error);
            }
            self.free.push(number);
        }
        self.ended = ended;
        self.live.store(self.requests, Ordering::Relaxed);
    }

    #[inline]
    fn finish(
        &mut self,
        task: &Task,
        number: usize,
        result: Result<(), Failure>,
        now: u64,
    ) -> Result<(), JobError> {
        let slot = &self.slots[number];
        let choice = slot.choice;
        self.polled_in_flight -= usize::from(choice.completion == Completion::Polled);
        let offset = self.begin + choice.block as u64 * self.plan.bytes as u64;
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
        if task.is_measured() {
            let ns = now.saturating_sub(choice.since);
            self.latencies
                .ended(choice.direction, choice.completion, ns);
        }
        match &mut self.verifier {
            Some(verifier) => Ok(verifier.finish(slot, offset)?),
            None => Ok(()),
        }
    }

    /// The first error counts; it ends the other jobs, too.
    #[cold]
    pub fn fail(&mut self, error: JobError) {
        self.failed.get_or_insert(error);
        self.stop.ask();
    }
}

impl Verifier {
    /// Before a request for the block at `offset`: which write is it, or has it to find?
    fn prepare(&mut self, span: Span, choice: Choice, offset: u64) -> Option<u64> {
        if choice.direction == Direction::Read {
            let sequence = self.model.holds(choice.block)?;
            self.block.fill(UNTOUCHED);
            span.write(&self.block);
            return Some(sequence);
        }
        let stamp = Stamp {
            offset,
            sequence: self.model.next_write(),
            seed: self.seed,
        };
        stamp.fill(&mut self.block);
        span.write(&self.block);
        Some(stamp.sequence)
    }

    /// A request has ended well.
    fn finish(&mut self, slot: &Slot, offset: u64) -> Result<(), Mismatch> {
        let Choice {
            direction, block, ..
        } = slot.choice;
        if direction == Direction::Write {
            self.model.release(block, slot.sequence);
            return Ok(());
        }
        self.model.release(block, None);
        // What this run has not written may hold anything.
        let Some(sequence) = slot.sequence else {
            return Ok(());
        };
        let stamp = Stamp {
            offset,
            sequence,
            seed: self.seed,
        };
        slot.span.read(&mut self.block);
        stamp.check(&self.block)?;
        self.checked += 1;
        Ok(())
    }
}

/// In a word: six centuries.
pub fn nanoseconds(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}
