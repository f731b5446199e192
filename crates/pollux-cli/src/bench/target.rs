//! What is driven: a connection of our driver to a server, inside this process or not.

use std::io::{self, ErrorKind, Write as _, stderr};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pollux::disk::{Disk, Geometry};
use pollux::driver::{
    ConnectError, Driver, Experiment, KickLock, Lost, Options, Reconnect, Waiting,
};
use pollux_load::{Buffers, Mixed, Waits};

use super::cpu::Server;
use super::inside::Inside;
use super::options::{self, BenchArgs};
use super::plan::Mix;
use super::progress::Progress;
use super::run::{Common, Outcome, run};
use crate::log::chain;
use crate::process::ProcessArgs;

type Error = Box<dyn std::error::Error>;

/// The least entries of a queue that are asked for, and the most that any server takes.
const ENTRIES: (u16, u16) = (256, 1024);

/// A server that does not answer for so long is told of.
const SLOW: Duration = Duration::from_secs(2);

/// A disk behind a vhost-user socket.
pub struct Target {
    driver: Driver,
    inside: Option<Inside>,
}

impl Target {
    /// Connects to what `args` say. A server inside this process runs on `cpus`.
    pub fn open(args: &BenchArgs, cpus: &[usize]) -> Result<Self, Error> {
        let queues = if args.share_queue { 1 } else { args.numjobs };
        let Some(spec) = args.spec()? else {
            refuse_server_options(args)?;
            let socket = args.socket.as_deref();
            let socket = socket.ok_or("give --socket PATH or --disk SPEC")?;
            let driver = connect(socket, queues, args)?;
            return Ok(Self {
                driver,
                inside: None,
            });
        };
        let inside = Inside::start(&spec, args, queues, cpus)?;
        Ok(Self {
            driver: connect(inside.socket(), queues, args)?,
            inside: Some(inside),
        })
    }

    /// The disk's size and blocks.
    pub fn geometry(&self) -> Geometry {
        self.driver.geometry()
    }

    /// Whose processor time is the server's, if that is known.
    pub fn server(&self) -> Option<Server> {
        match &self.inside {
            Some(inside) => inside.server(),
            None => self.driver.server().map(Server::Process),
        }
    }

    /// Runs the jobs on a queue each, or all on one.
    pub fn run(
        &self,
        args: &BenchArgs,
        common: &Common<'_>,
        progress: &mut Progress,
    ) -> Result<Outcome, Error> {
        let plan = common.plan;
        let memory = (0..plan.jobs).map(|_| Buffers::new(&self.driver, plan.depth, plan.bytes));
        let memory = memory.collect::<io::Result<Vec<_>>>().map_err(|error| {
            let (jobs, len) = (plan.jobs, plan.bytes * plan.depth);
            format!(
                "no memory for --iodepth times --bs in each of {jobs} jobs ({len} bytes): {error}"
            )
        })?;
        let waits = match plan.mix {
            Mix::All(options::Waiting::Polled) => Waits::Alike(Waiting::Polled),
            Mix::All(options::Waiting::Adaptive) => Waits::Alike(Waiting::Adaptive),
            Mix::All(options::Waiting::Call) => Waits::Alike(Waiting::Call),
            Mix::Hipri(_) => Waits::Each,
        };
        let memory = memory.into_iter();
        let not_started = |error| not_started(error, entries(args));
        if !args.share_queue {
            let client = |memory| Mixed::new(waits, memory, |wait| self.driver.channel(wait));
            let clients = memory.map(client).collect::<io::Result<_>>();
            let clients = clients.map_err(not_started)?;
            return Ok(run(clients, None, common, progress)?);
        }
        let queue = self.driver.queue(0).map_err(not_started)?;
        let client = |memory| Mixed::new(waits, memory, |wait| queue.channel(wait));
        let clients = memory.map(client).collect::<io::Result<_>>()?;
        Ok(run(clients, Some(&queue), common, progress)?)
    }

    /// Disconnects, and says why the server was lost, if it was.
    pub fn close(self) -> Option<Lost> {
        let lost = self.driver.lost();
        drop(self.driver);
        if let Some(inside) = self.inside {
            inside.end();
        }
        lost
    }
}

fn connect(socket: &Path, queues: u16, args: &BenchArgs) -> Result<Driver, Error> {
    let experiment = Experiment {
        kick_lock: match args.kick_lock {
            None | Some(options::KickLock::Released) => KickLock::Released,
            Some(options::KickLock::Held) => KickLock::Held,
        },
        // Recording costs something, so only where the lock is what is measured.
        record_lock: args.kick_lock.is_some(),
        ..Experiment::default()
    };
    let options = Options::default()
        .queues(queues)
        .queue_size(entries(args))
        .reconnect(args.reconnect.map_or(Reconnect::Never, Reconnect::Within))
        .experiment(experiment);
    let driver = patiently(socket, || Driver::connect(socket, &options));
    let driver = driver.map_err(no_connection)?;
    let (wanted, entries) = (in_flight(args), entries(args));
    if wanted > entries {
        tracing::warn!(
            wanted,
            entries,
            "more requests are to be in flight than the ring has entries: the others wait for their turn in the client"
        );
    }
    let offered = driver.queues();
    if offered < queues {
        return Err(format!(
            "--numjobs {queues}: the server offers {offered} (num-queues); give --numjobs {offered}, or --share-queue"
        )
        .into());
    }
    Ok(driver)
}

/// Connects, and says so if it takes time.
fn patiently<T>(socket: &Path, connect: impl FnOnce() -> T) -> T {
    let (connecting, connected) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let tells = move || {
            if connected.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
                let socket = socket.display();
                // Its reader may be gone.
                let _ = writeln!(
                    stderr(),
                    "pollux: waiting for the server at {socket}, which may serve another client"
                );
            }
        };
        // Without it nothing is told.
        let _ = thread::Builder::new().spawn_scoped(scope, tells);
        let outcome = connect();
        drop(connecting);
        outcome
    })
}

/// What to do about `error`, in words of the options that there are here.
fn no_connection(error: ConnectError) -> Error {
    match &error {
        ConnectError::Lost {
            path,
            source: Lost::Silent { patience, .. },
        } => format!(
            "the server at {} has not answered for {patience:?}; it may serve another client, or be stopped: free it \
             or restart it",
            path.display()
        )
        .into(),
        // As a server of HTTP does.
        ConnectError::Lost {
            source: Lost::Closed | Lost::Protocol { .. },
            ..
        } => format!(
            "{}; if this is the path of --control, give that of --socket-path",
            chain(&error)
        )
        .into(),
        _ => error.into(),
    }
}

/// How many requests may be in flight on each queue.
fn in_flight(args: &BenchArgs) -> u16 {
    let sharers = if args.share_queue { args.numjobs } else { 1 };
    args.iodepth.saturating_mul(sharers)
}

/// How many entries each ring has.
fn entries(args: &BenchArgs) -> u16 {
    let needed = in_flight(args)
        .checked_next_power_of_two()
        .unwrap_or(ENTRIES.1);
    let usual = needed.clamp(ENTRIES.0, ENTRIES.1);
    args.queue_size.unwrap_or(usual)
}

/// A queue of so many `entries` was not started: the server said no, or closed the connection over it.
fn not_started(error: io::Error, entries: u16) -> Error {
    match error.kind() {
        ErrorKind::Other | ErrorKind::BrokenPipe => format!(
            "the server started no queue of {entries} entries; if it takes smaller ones, give --queue-size as the server \
             was given it; if it has `lock=running`, end another daemon that uses the image: {error}"
        )
        .into(),
        _ => error.into(),
    }
}

/// The options of a server are for the one inside this process.
fn refuse_server_options(args: &BenchArgs) -> Result<(), Error> {
    // All are named, so that the next one is not forgotten here.
    let ProcessArgs {
        threads,
        cpus: _,
        poll,
        poll_max_us,
        poll_cpu,
        signal,
        kicks,
        calls,
        sandbox: _,
    } = &args.process;
    let given = [
        ("--threads", threads.is_some()),
        ("--poll", poll.is_some()),
        ("--poll-max-us", poll_max_us.is_some()),
        ("--poll-cpu", poll_cpu.is_some()),
        ("--signal", signal.is_some()),
        ("--kicks", kicks.is_some()),
        ("--calls", calls.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(format!(
            "{option}: this is for the server, which runs already; give it to `pollux serve`, or serve \
             a --disk from inside"
        )
        .into()),
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pollux_load::Stop;

    use super::*;
    use crate::bench::options::tests::parse;
    use crate::bench::plan::Plan;

    /// What `pollux bench` measures with these options.
    pub fn measured(line: &str) -> Outcome {
        measured_until(line, &Arc::default())
    }

    /// The same, until `stop` is asked.
    fn measured_until(line: &str, stop: &Arc<Stop>) -> Outcome {
        let args = parse(line).unwrap();
        let target = Target::open(&args, &[]).unwrap();
        let plan = Plan::new(&args, &target.geometry()).unwrap();
        let counts: Vec<_> = (0..plan.jobs).map(|_| Arc::default()).collect();
        let common = Common {
            plan: &plan,
            stop,
            live: &counts,
            cpus: &[],
            server: None,
            seed: 1,
        };
        let outcome = target.run(&args, &common, &mut Progress::new(plan.runtime));
        let outcome = outcome.unwrap();
        assert!(target.close().is_none() && outcome.error.is_none());
        outcome
    }

    /// Each job begins and ends at its own time, and verifies before or after that.
    #[test]
    fn what_is_counted_is_what_was_measured() {
        for sharing in ["", " --share-queue", " --share-queue --kick-lock held"] {
            for rw in ["randread", "randwrite"] {
                let line = format!(
                    "--disk memory:size=8M --runtime 100ms --numjobs 3 --iodepth 4 --verify crc32c --rw {rw}{sharing}"
                );
                let outcome = measured(&line);
                let latencies = &outcome.latencies;
                let requests = latencies.read.count() + latencies.write.count();
                assert_eq!(outcome.counters.requests, requests, "{line}");
                assert_eq!(outcome.lock.is_some(), sharing.contains("held"), "{line}");
            }
        }
    }

    /// The first request is due at once.
    #[test]
    fn what_is_due_after_the_stop_is_not_left_in_line() {
        let stop = Arc::new(Stop::default());
        stop.ask();
        let line = "--disk null:size=1M --rw randread --rate-iops 1000 --runtime 10m";
        let outcome = measured_until(line, &stop);
        assert_eq!((outcome.stopped, outcome.unstarted), (true, 0));
    }

    #[test]
    fn a_server_that_is_busy_or_another_one_is_told_with_what_to_do() {
        let lost = |source| {
            let path = "x.sock".into();
            no_connection(ConnectError::Lost { path, source }).to_string()
        };
        let silent = lost(Lost::Silent {
            message: "its features",
            patience: Duration::from_secs(10),
        });
        assert!(
            silent.starts_with(
                "the server at x.sock has not answered for 10s; it may serve another client"
            ),
            "{silent}"
        );
        let closed = lost(Lost::Closed);
        assert!(
            closed.ends_with("; if this is the path of --control, give that of --socket-path"),
            "{closed}"
        );
    }

    #[test]
    fn a_server_that_runs_already_is_given_no_options() {
        for option in [
            "--threads 2",
            "--poll never",
            "--poll-max-us 9",
            "--poll-cpu 25%",
            "--signal after-submissions",
            "--kicks per-turn",
            "--calls at-once",
        ] {
            let args = parse(&format!("--socket nowhere {option}")).unwrap();
            let error = Target::open(&args, &[]).err().expect("it is refused");
            let error = error.to_string();
            let (name, _) = option.split_once(' ').unwrap();
            assert!(error.starts_with(&format!("{name}: ")), "{option}: {error}");
        }
    }
}
