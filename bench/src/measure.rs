//! One run: two servers, a client on each, and slices of a tenth of a second in turn, A B A B.
//!
//! Each phase measures one thing, so that measuring it disturbs no other: in each slice how many requests (with
//! processor time and sleeps, which the kernel counts anyway), then how long each takes; at the end the system calls.
//! The two of a pair are as near to each other in time as can be, since the host does not stay as it is. While one
//! server is measured the other is stopped, lest it polls.

mod cost;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use pollux_driver::Waiter;
use pollux_load::{Closed, Histogram, microseconds};
use pollux_stats::Snapshot;
use pollux_tests::process::Process;
use pollux_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::cell::Cell;
use crate::client::{Blkio, Client};
use crate::interrupt::Interrupt;
use crate::pairing::{self, Distance, Tagged};
use crate::perf::{self, Counting, Target};
use crate::pinned::Pinned;
use crate::round_trip::{self, Processors};

use self::cost::thread_id;
pub use self::cost::{Cost, Spent, Throughput, throughput};

/// How long to measure, and where the client runs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of the phase that counts requests; the others are a quarter of it.
    pub runtime: Duration,
    /// Where clients and servers run.
    pub processors: Processors,
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
    /// Of each request of its run, from outside; absent where system calls cannot be counted.
    pub system_calls: Option<SystemCalls>,
    /// The counters of Pollux itself since it was started for this run.
    pub counters: Option<Snapshot>,
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

/// What a run finds of each side, slice by slice.
pub type Run = [Vec<Tagged<Sample>>; 2];

/// Can any of its slices be compared?
pub fn has_pairs([ours, theirs]: &Run) -> bool {
    !pairing::alike(ours, theirs, |_| None).is_empty()
}

/// One side's, for the log.
pub fn brief(samples: &[Tagged<Sample>]) -> String {
    let iops = |one: &Tagged<Sample>| {
        let mark = match one.distance {
            Some(Distance::Near) => "n",
            Some(Distance::Far) => "f",
            None => "!",
        };
        format!("{:.1}{mark}", one.found.throughput.iops / 1000.0)
    };
    let all: Vec<String> = samples.iter().map(iops).collect();
    format!("{} k IOPS", all.join(" "))
}

/// Measures both sides of `cell`, each on its server; `folder` is for pipes to `perf`.
///
/// # Errors
/// Also when a client has not come back a minute after it should have: a request was lost.
pub fn run(
    servers: [&Server; 2],
    folder: &Path,
    cell: Cell,
    plan: Plan,
    interrupt: &Interrupt,
) -> io::Result<Run> {
    let folder = folder.to_owned();
    let clients = cell.contest.sides().map(|side| side.client);
    let [one, other] = servers.map(|server| (server.socket().to_owned(), server.pid()));
    let patience = 6 * plan.runtime + Duration::from_secs(60);
    watched(patience, interrupt, move || {
        let _pinned = Pinned::to(plan.processors.own)?;
        let connect = |(socket, server): (PathBuf, u32), client| {
            let load = connect(&socket, client, cell)?;
            io::Result::Ok(Turn { load, server })
        };
        let turns = [connect(one, clients[0])?, connect(other, clients[1])?];
        in_turn(turns, &folder, plan)
    })
}

fn connect(socket: &Path, client: Client, cell: Cell) -> io::Result<Box<dyn Phases>> {
    let (disk, job) = (cell.disk, cell.job());
    Ok(match client {
        Client::Blkio(waiting) => Box::new(job.closed(Blkio::connect(socket, waiting, job)?, disk)),
        Client::Driver(waiting) => {
            let client = job.connect(socket, Waiter::new(waiting)?)?;
            Box::new(job.closed(client, disk))
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

/// What is done with a load, whatever its client: compiled for each.
trait Phases {
    /// Queues as many requests as there may be.
    fn begin(&mut self);
    /// [`Closed::run_for`]
    fn run_for(&mut self, time: Duration) -> io::Result<u32>;
    /// [`Closed::run_timed`]
    fn run_timed(&mut self, time: Duration) -> io::Result<Histogram>;
    /// [`Closed::finish`]
    fn finish(&mut self) -> io::Result<()>;
    /// Ends the connection, with nothing in flight.
    fn end(self: Box<Self>) -> io::Result<()>;
}

impl<R: pollux_load::Client> Phases for Closed<R> {
    fn begin(&mut self) {
        Self::begin(self);
    }
    fn run_for(&mut self, time: Duration) -> io::Result<u32> {
        Self::run_for(self, time)
    }
    fn run_timed(&mut self, time: Duration) -> io::Result<Histogram> {
        Self::run_timed(self, time)
    }
    fn finish(&mut self) -> io::Result<()> {
        Self::finish(self)
    }
    fn end(self: Box<Self>) -> io::Result<()> {
        self.end_with(0)
    }
}

/// One of two that take turns.
struct Turn {
    load: Box<dyn Phases>,
    server: u32,
}

impl Turn {
    /// What `run` finds while it is this one's turn: then nothing is in flight any more, and the server is stopped.
    fn take<T>(&mut self, run: impl FnOnce(&mut dyn Phases) -> io::Result<T>) -> io::Result<T> {
        self.signal(Signal::CONT)?;
        self.load.begin();
        let found = run(&mut *self.load)?;
        self.load.finish()?;
        self.signal(Signal::STOP)?;
        Ok(found)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = i32::try_from(self.server).ok().and_then(Pid::from_raw);
        let id = id.expect("a process that was started has a number");
        Ok(kill_process(id, signal)?)
    }
}

/// How many slices there are, and how long each counts requests.
fn slices(runtime: Duration) -> (u32, Duration) {
    /// Long beside what a server that was stopped has to learn again, and short beside what the host does.
    const SLICE: Duration = Duration::from_millis(100);
    let number = runtime.as_millis().div_ceil(SLICE.as_millis()).max(1);
    let number = u32::try_from(number).expect("a tenth of a second each, of an hour");
    (number, runtime / number)
}

fn in_turn(mut turns: [Turn; 2], folder: &Path, plan: Plan) -> io::Result<Run> {
    let quarter = plan.runtime / 4;
    for turn in &mut turns {
        turn.take(|load| load.run_for(quarter))?;
    }
    let (number, time) = slices(plan.runtime);
    let mut found = Run::default();
    for _ in 0..number {
        for (turn, samples) in turns.iter_mut().zip(&mut found) {
            let server = Process::new(turn.server);
            let sample = || turn.take(|load| slice(load, time, server));
            samples.push(round_trip::tagged(plan.processors, sample)?);
        }
    }
    for (turn, samples) in turns.iter_mut().zip(&mut found) {
        if plan.syscalls == Syscalls::Counted {
            let (client, server) = (Target::Thread(thread_id()), turn.server);
            let counted = turn.take(|load| {
                system_calls(server, client, folder, || {
                    load.run_for(quarter).map(f64::from)
                })
            })?;
            for sample in samples {
                sample.found.system_calls = Some(counted);
            }
        }
        turn.signal(Signal::CONT)?;
    }
    for turn in turns {
        turn.load.end()?;
    }
    Ok(found)
}

fn slice(load: &mut dyn Phases, time: Duration, server: Process) -> io::Result<Sample> {
    load.run_for(time / 4)?;
    let throughput = throughput(&[server], || load.run_for(time).map(f64::from))?;
    Ok(Sample {
        throughput,
        latency: latency(load, time / 4)?,
        system_calls: None,
        counters: None,
    })
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn latency(load: &mut dyn Phases, time: Duration) -> io::Result<Latency> {
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
    let folder = tempfile::tempdir_in(folder)?;
    let folder = folder.path();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_a_tenth_of_a_second_or_less_and_last_as_long_together() {
        let of = |ms| slices(Duration::from_millis(ms));
        let ms = Duration::from_millis;
        assert_eq!(of(1000), (10, ms(100)));
        assert_eq!(of(250), (3, ms(250) / 3));
        assert_eq!(of(30), (1, ms(30)));
        assert_eq!(of(0), (1, Duration::ZERO));
    }
}
