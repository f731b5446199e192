//! One measurement: a client, and a server that runs, in phases.
//!
//! Each phase looks at one thing, so that looking at it disturbs no other: how many requests (with
//! processor time and sleeps, which the kernel counts anyway), then how long each takes, then the
//! system calls.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use pollux_driver::{Waiter, Waiting};
use pollux_stats::Snapshot;
use pollux_tests::process::Process;
use pollux_tests::server::Server;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::cell::Cell;
use crate::client::{Blkio, Client, Own, Requests};
use crate::interrupt::Interrupt;
use crate::load::{Load, microseconds};
use crate::perf::{self, Counting, Target};
use crate::pinned::Pinned;
use crate::quiet::{Disturbance, Usage};

/// How long to measure, and where the client runs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of the phase that counts requests; the others are a quarter of it.
    pub runtime: Duration,
    /// The processor of the client.
    pub client_cpu: usize,
    /// Whether system calls are counted.
    pub syscalls: Syscalls,
}

/// Can system calls be counted here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscalls {
    /// Yes, by `perf`.
    Counted,
    /// No.
    NotCounted,
}

/// What a measurement found.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// How many requests, and at what cost.
    #[serde(flatten)]
    pub throughput: Throughput,
    /// How long requests took.
    pub latency: Latency,
    /// Of each request, from outside; absent where system calls cannot be counted.
    pub system_calls: Option<SystemCalls>,
    /// The counters of Pollux itself since it was started.
    pub counters: Option<Snapshot>,
}

/// What the first phase finds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Requests a second.
    pub iops: f64,
    /// Of the server, for each request.
    pub server: Cost,
    /// Of the client, for each request.
    pub client: Cost,
    /// What others did meanwhile.
    pub disturbance: Disturbance,
}

/// What one side spends on a request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Processor time in microseconds.
    pub cpu_us: f64,
    /// How often it goes to sleep.
    pub sleeps: f64,
}

/// How long requests took, as the client sees it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half of them were faster, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred were faster, in microseconds.
    pub p99_us: f64,
    /// Requests a second while each was timed: what the timing costs.
    pub iops: f64,
}

/// System calls for each request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SystemCalls {
    /// All of the server.
    pub server: f64,
    /// All of the client.
    pub client: f64,
    /// Writes of the client to an eventfd that the server holds too.
    pub kicks: Option<f64>,
    /// Writes of the server to an eventfd that the client holds too.
    pub calls: Option<f64>,
}

impl Sample {
    /// Kicks for each request: counted outside, or else by Pollux.
    pub fn kicks(&self) -> Option<f64> {
        match self.system_calls {
            Some(SystemCalls { kicks, .. }) => kicks,
            None => self.counters.and_then(|own| own.kicks_per_io()),
        }
    }

    /// Calls for each request: counted outside, or else by Pollux.
    pub fn calls(&self) -> Option<f64> {
        match self.system_calls {
            Some(SystemCalls { calls, .. }) => calls,
            None => self.counters.and_then(|own| own.calls_per_io()),
        }
    }
}

/// Measures `cell` on `server`; `folder` is for pipes to `perf`.
///
/// # Errors
/// Also when the client has not come back a minute after it should have: a request was lost.
pub fn measure(
    server: &Server,
    folder: &Path,
    (client, cell): (Client, Cell),
    plan: Plan,
    interrupt: &Interrupt,
) -> io::Result<Sample> {
    let (socket, folder) = (server.socket().to_owned(), folder.to_owned());
    let process = server.pid();
    let patience = 2 * plan.runtime + Duration::from_secs(60);
    watched(patience, interrupt, move || {
        let _pinned = Pinned::to(plan.client_cpu)?;
        let (disk, job) = (cell.disk, cell.job());
        match client {
            Client::Blkio(waiting) => {
                let load = Load::start(Blkio::connect(&socket, waiting, job)?, disk, job);
                run(load, process, &folder, plan)
            }
            Client::Driver(waiting) => {
                let client = Own::connect(&socket, Waiter::new(waiting)?, job)?;
                run(Load::start(client, disk, job), process, &folder, plan)
            }
            Client::Sleeper => {
                let waiter = Waiter::new(Waiting::Call)?.looking_for(Duration::ZERO);
                let client = Own::connect(&socket, waiter, job)?;
                run(Load::start(client, disk, job), process, &folder, plan)
            }
        }
    })
}

/// Runs `client` in a thread of its own; an error if it has not ended in time, or is interrupted.
pub fn watched<T: Send + 'static>(
    patience: Duration,
    interrupt: &Interrupt,
    client: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (finished, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = finished.send(client());
    });
    let hangs = Instant::now() + patience;
    while Instant::now() < hangs {
        match outcome.recv_timeout(Duration::from_millis(100)) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) => interrupt.check()?,
            Err(RecvTimeoutError::Disconnected) => break, // its panic is on the terminal
        }
    }
    Err(io::Error::other(
        "the client hangs: a request was not answered, or a call is missing",
    ))
}

fn run<R: Requests>(
    mut load: Load<R>,
    process: u32,
    folder: &Path,
    plan: Plan,
) -> io::Result<Sample> {
    load.run_for(plan.runtime / 4)?;

    let quarter = plan.runtime / 4;
    let throughput = throughput(Process::new(process), || {
        load.run_for(plan.runtime).map(f64::from)
    })?;
    let latency = latency(&mut load, quarter)?;
    let system_calls = match plan.syscalls {
        Syscalls::Counted => Some(system_calls(
            process,
            Target::Thread(thread_id()),
            folder,
            || load.run_for(quarter).map(f64::from),
        )?),
        Syscalls::NotCounted => None,
    };
    load.end()?;
    Ok(Sample {
        throughput,
        latency,
        system_calls,
        counters: None,
    })
}

/// What the kernel counts anyway, for one side.
pub struct Spent {
    cpu: Duration,
    sleeps: u64,
}

impl Spent {
    /// By all threads of the server so far.
    pub fn by_server(process: Process) -> io::Result<Self> {
        Ok(Self {
            cpu: Duration::from_nanos(process.cpu_ns()?),
            sleeps: process.sleeps()?.values().sum(),
        })
    }

    /// By the calling thread so far.
    pub fn by_this_thread() -> io::Result<Self> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Ok(Self {
            cpu: Duration::try_from(time).expect("a thread's time is not negative"),
            sleeps: Process::new(std::process::id()).sleeps_of(thread_id())?,
        })
    }

    /// The difference, for each of `requests`. A thread that has ended takes its share with it.
    #[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
    pub fn until(&self, later: &Self, requests: f64) -> Cost {
        Cost {
            cpu_us: later.cpu.saturating_sub(self.cpu).as_secs_f64() * 1e6 / requests,
            sleeps: later.sleeps.saturating_sub(self.sleeps) as f64 / requests,
        }
    }
}

fn thread_id() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

/// What `run` costs this thread and the server `process`; it says how many requests it has made.
pub fn throughput(
    process: Process,
    run: impl FnOnce() -> io::Result<f64>,
) -> io::Result<Throughput> {
    let usage = Usage::now(Some(process))?;
    let server = Spent::by_server(process)?;
    let client = Spent::by_this_thread()?;
    let start = Instant::now();
    let requests = run()?;
    let elapsed = start.elapsed();
    let client = client.until(&Spent::by_this_thread()?, requests);
    let server = server.until(&Spent::by_server(process)?, requests);
    let disturbance = usage.others_until(&Usage::now(Some(process))?);
    Ok(Throughput {
        iops: requests / elapsed.as_secs_f64(),
        server,
        client,
        disturbance,
    })
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn latency<R: Requests>(load: &mut Load<R>, time: Duration) -> io::Result<Latency> {
    let start = Instant::now();
    let latencies = load.run_timed(time)?;
    let elapsed = start.elapsed();
    Ok(Latency {
        p50_us: microseconds(&latencies, 0.5),
        p99_us: microseconds(&latencies, 0.99),
        iops: latencies.len() as f64 / elapsed.as_secs_f64(),
    })
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
/// What `run` asks of the kernel, in the process `server` and in `client` of this one; it says how many
/// requests it has made.
pub fn system_calls(
    server: u32,
    client: Target,
    folder: &Path,
    run: impl FnOnce() -> io::Result<f64>,
) -> io::Result<SystemCalls> {
    let shared = perf::shared_eventfds(server, std::process::id())?;
    let [servers, clients] = match &shared {
        Some([servers, clients]) => [Some(&servers[..]), Some(&clients[..])],
        None => [None, None],
    };
    let mut server = Counting::attach(Target::Process(server), servers, folder)?;
    let mut client = Counting::attach(client, clients, folder)?;
    server.enable()?;
    client.enable()?;
    let requests = run()?;
    client.disable()?;
    server.disable()?;
    let (server, client) = (server.finish()?, client.finish()?);
    let each = |count: u64| count as f64 / requests;
    Ok(SystemCalls {
        server: each(server.syscalls),
        client: each(client.syscalls),
        kicks: client.notifications.map(each),
        calls: server.notifications.map(each),
    })
}
