//! All jobs of a run: their threads, and the moments at which they begin together.

use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use pollux::driver::{Counters, Hybrid, LockTimes, Queue};
use pollux_load::{Job, JobError, Latencies, Live, Measured, Mixed, Stop, Task, nanoseconds};
use pollux_threads::lock;

use super::cpu::{self, Server, Usage};
use super::phase::Phase;
use super::plan::Plan;
use super::progress::Progress;

/// What one job, or all of them together, have come to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub latencies: Latencies,
    pub counters: Counters,
    /// How long the lock of a shared queue was held and waited for, where that was recorded.
    pub lock: Option<LockTimes>,
    pub client: Usage,
    /// Of the server; `None` where it is not known.
    pub server: Option<Duration>,
    /// From the start until the last request that is measured had ended; with a rate, at least the time of the run.
    pub elapsed: Duration,
    /// Requests that were due and stayed in line; of a run that went on to its end.
    pub unstarted: u64,
    /// Blocks that were read and are what was written.
    pub checked: u64,
    /// Was it told to end before all of it was done?
    pub stopped: bool,
    pub error: Option<JobError>,
}

impl Outcome {
    /// Adds another job.
    fn add(&mut self, job: Self) {
        self.latencies.add(&job.latencies);
        self.counters = self.counters.plus(job.counters);
        self.client.add(job.client);
        self.elapsed = self.elapsed.max(job.elapsed);
        self.unstarted += job.unstarted;
        self.checked += job.checked;
        self.stopped |= job.stopped;
        self.error = self.error.take().or(job.error);
    }
}

/// What the jobs of a run have in common.
pub struct Common<'a> {
    pub plan: &'a Plan,
    pub stop: &'a Arc<Stop>,
    /// One for each job.
    pub live: &'a [Arc<Live>],
    /// One for each job, in turn; empty: wherever the kernel puts them.
    pub cpus: &'a [usize],
    /// Whose processor time is measured, too.
    pub server: Option<Server>,
    /// Marks the blocks of this run.
    pub seed: u64,
}

/// Lets the jobs into the next phase.
#[derive(Debug)]
struct Gate {
    phase: Mutex<Phase>,
    opened: Condvar,
}

impl Gate {
    fn open(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.opened.notify_all();
    }

    fn pass(&self, phase: Phase) {
        let now = lock(&self.phase);
        let closed = |now: &mut Phase| *now < phase;
        let _open = self
            .opened
            .wait_while(now, closed)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// How many requests of all jobs have ended.
pub fn ended(live: &[Arc<Live>]) -> u64 {
    live.iter().map(|job| job.ended()).sum()
}

/// Runs a job on each of `clients`; all of them go into `queue`, if there is one that they share.
///
/// # Errors
///
/// When the machine cannot run so many. What ends a job early is in the outcome.
pub fn run<C: Hybrid>(
    clients: Vec<Mixed<C>>,
    queue: Option<&Queue>,
    common: &Common<'_>,
    progress: &mut Progress,
) -> io::Result<Outcome> {
    let gate = Gate {
        phase: Mutex::new(Phase::Fill),
        opened: Condvar::new(),
    };
    let (ended, phases) = channel();
    let jobs = (0..)
        .zip(clients)
        .zip(common.live)
        .map(|((number, client), live)| {
            let plan = common.plan.of_job(number, common.seed);
            Job::watched(plan, client, Arc::clone(common.stop), Arc::clone(live))
        });
    let jobs = jobs.collect::<io::Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let start = |(number, job)| {
            let (gate, ended) = (&gate, ended.clone());
            let name = format!("job-{number}");
            let body = move || one(job, number, queue, common, gate, &ended);
            thread::Builder::new().name(name).spawn_scoped(scope, body)
        };
        let started: io::Result<Vec<_>> = (0..).zip(jobs).map(start).collect();
        let threads = match started {
            Ok(threads) => threads,
            Err(error) => {
                // Those that were started end at once.
                common.stop.ask();
                gate.open(Phase::ReadBack);
                return Err(error);
            }
        };
        Ok(direct(threads, &phases, &gate, queue, common, progress))
    })
}

/// Leads the jobs through the phases.
fn direct(
    threads: Vec<ScopedJoinHandle<'_, Outcome>>,
    phases: &Receiver<Phase>,
    gate: &Gate,
    queue: Option<&Queue>,
    common: &Common<'_>,
    progress: &mut Progress,
) -> Outcome {
    let server = || common.server.as_ref().and_then(Server::snapshot);
    let shared = || queue.map(|queue| (queue.counters(), queue.lock_times()));
    let mut until_ended = |phase| {
        progress.enter(phase);
        let mut left = threads.len();
        while left > 0 {
            match phases.recv_timeout(progress.interval()) {
                Ok(_) => left -= 1,
                Err(RecvTimeoutError::Timeout) => {
                    if !progress.show(ended(common.live), common.stop.is_asked()) {
                        abandon(progress);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    };
    until_ended(Phase::Fill);
    gate.open(Phase::Ramp);
    until_ended(Phase::Ramp);
    // No job is between two phases while it waits at the gate, so what happens meanwhile is of the one phase alone.
    let (shared_before, before) = (shared(), server());
    gate.open(Phase::Run);
    until_ended(Phase::Run);
    let (after, shared_after) = (server(), shared());
    gate.open(Phase::ReadBack);
    until_ended(Phase::ReadBack);
    progress.finish();
    let mut all = Outcome::default();
    for thread in threads {
        all.add(thread.join().expect("a job does not panic"));
    }
    all.server = after
        .zip(before)
        .map(|(after, before)| after.since(&before));
    if let Some(((counters, lock), (counters_before, lock_before))) =
        shared_after.zip(shared_before)
    {
        all.counters = counters.since(counters_before);
        all.lock = lock
            .zip(lock_before)
            .map(|(after, before)| after.since(&before));
    }
    all
}

/// Ends this process while its jobs wait for requests that do not end. They have these in their hands until then.
fn abandon(progress: &Progress) -> ! {
    progress.finish();
    progress.say("the disk does not answer: this ends without a report");
    std::process::exit(1)
}

/// The thread of one job.
fn one<C: Hybrid>(
    mut job: Job<Mixed<C>>,
    number: u16,
    queue: Option<&Queue>,
    common: &Common<'_>,
    gate: &Gate,
    ended: &Sender<Phase>,
) -> Outcome {
    let Common { plan, cpus, .. } = *common;
    // The receiver is gone only where the run has failed.
    let tell = |phase| ended.send(phase).unwrap_or_default();
    if let Some(&cpu) = cpus.get(usize::from(number) % cpus.len().max(1))
        && let Err(error) = cpu::pin(cpu)
    {
        job.fail(JobError::Pin(error));
    }
    // Without it, the kernel ends a sleep up to 50 µs late, which would count as the server's latency.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if plan.verify && !plan.rw.writes() {
        job.work(&mut Task::fill());
    }
    tell(Phase::Fill);
    gate.pass(Phase::Ramp);
    let mut ramp = Task::ramp(&job.plan, plan.ramp_time);
    job.work(&mut ramp);
    tell(Phase::Ramp);
    gate.pass(Phase::Run);
    // What a shared queue counts is of all jobs, and no job's own.
    let counters = |job: &mut Job<Mixed<C>>| match queue {
        Some(_) => Counters::default(),
        None => job.client().counters(),
    };
    let (before, client) = (counters(&mut job), Usage::of_this_thread());
    let mut task = ramp.then_run(&job.plan);
    let worked = job.work(&mut task);
    let client = Usage::of_this_thread().since(client);
    let counters = counters(&mut job).since(before);
    let (elapsed, unstarted) = if common.stop.is_asked() {
        // A server cannot keep up with what was due after the end was asked for.
        (worked, 0)
    } else {
        let elapsed = plan.span(worked);
        (elapsed, task.unstarted(nanoseconds(elapsed)))
    };
    tell(Phase::Run);
    gate.pass(Phase::ReadBack);
    if plan.verify && plan.rw.writes() {
        job.work(&mut Task::read_back());
    }
    let stopped = common.stop.is_asked();
    tell(Phase::ReadBack);
    let Measured {
        latencies,
        checked,
        failed: error,
    } = job.measured;
    Outcome {
        latencies,
        counters,
        client,
        elapsed,
        unstarted,
        checked,
        stopped,
        error,
        ..Outcome::default()
    }
}
