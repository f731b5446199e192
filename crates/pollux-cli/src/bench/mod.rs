//! `pollux bench`: a load on a disk, driven by Pollux's own driver, and what it costs.
//!
//! ```text
//! options ── plan, held against the disk ──▶ run ──▶ a job (crate `load`: a thread, a channel) each
//!            outcome of all ──▶ report ──▶ table, json
//! ```

mod cpu;
mod fio;
mod inside;
mod json;
mod options;
mod phase;
mod plan;
mod progress;
mod report;
mod run;
mod table;
mod target;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pollux_load::{JobError, Live, Stop};
use signal_hook::consts::{SIGHUP, SIGUSR1};
use signal_hook::iterator::Signals;

use self::options::Output;
use self::plan::Plan;
use self::progress::Progress;
use self::report::Report;
use self::run::{Common, ended};
use self::target::Target;
use crate::log::chain;
use crate::paths::missing_right;
use crate::signals::{self, Repetitions};

pub use self::fio::options as foreign;
pub use self::options::BenchArgs;

type Error = Box<dyn std::error::Error>;

/// Runs the load and prints what it came to.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    // SIGUSR1 may come early: it is sent to all processes of this program for their counters.
    let signals = Signals::new([SIGUSR1])?;
    let mut output = output(args.output.as_deref())?;
    let cpus = args.process.cpu_list()?;
    let mut of_the_server = cpus.clone();
    of_the_server.rotate_left(usize::from(args.numjobs) % cpus.len().max(1));
    let target = Target::open(args, &of_the_server)?;
    let plan = Plan::new(args, &target.geometry())?;
    let stop = Arc::new(Stop::default());
    let live: Arc<[Arc<Live>]> = (0..plan.jobs).map(|_| Arc::default()).collect();
    watch_signals(signals, Arc::clone(&stop), Arc::clone(&live))?;
    let common = Common {
        plan: &plan,
        stop: &stop,
        live: &live,
        cpus: &cpus,
        server: target.server(),
        seed: fastrand::u64(..),
    };
    let mut progress = Progress::new(plan.runtime);
    let outcome = target.run(args, &common, &mut progress)?;
    let lost = target.close();
    let report = Report {
        args,
        plan: &plan,
        outcome: &outcome,
    };
    let printed = match args.output_format {
        Output::Normal => write!(output, "{}", table::report(&report)),
        Output::Json => writeln!(output, "{:#}", json::report(&report)),
    };
    match (lost, outcome.error) {
        (_, None) => Ok(printed.map_err(|error| unwritten(error, args.output.as_deref()))?),
        // Requests in flight have failed because of it.
        (Some(lost), Some(_)) => Err(lost.into()),
        (None, Some(error @ JobError::Request { .. })) if args.socket.is_some() => {
            Err(format!("{}; see the server's log", chain(&error)).into())
        }
        (None, Some(error)) => Err(error.into()),
    }
}

/// Where the report goes: known before anything is measured.
fn output(path: Option<&Path>) -> Result<Box<dyn Write>, Error> {
    let Some(path) = path else {
        return Ok(Box::new(io::stdout()));
    };
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => {
            let right = if path.exists() {
                "write it"
            } else {
                "make files in its folder"
            };
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    "; make its folder first, or correct the path".to_owned()
                }
                _ => missing_right(path, &error, right),
            };
            let path = path.display();
            Err(format!("--output {path} cannot be written{remedy}: {error}").into())
        }
    }
}

/// In `error`, a file is named.
fn unwritten(error: io::Error, path: Option<&Path>) -> io::Error {
    match path {
        Some(path) => io::Error::other(format!("--output {}: {error}", path.display())),
        None => error,
    }
}

/// Ends the run early at the first signal, and the process at the second; SIGUSR1 asks how far it is.
fn watch_signals(
    mut signals: Signals,
    stop: Arc<Stop>,
    live: Arc<[Arc<Live>]>,
) -> Result<(), Error> {
    for signal in signals::ending() {
        signals.add_signal(signal)?;
    }
    let begun = Instant::now();
    let watch = move || {
        let mut repetitions = Repetitions::default();
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => {
                    let (ended, seconds) = (ended(&live), begun.elapsed().as_secs_f64());
                    // Its reader may be gone.
                    let _ = writeln!(
                        io::stderr(),
                        "{ended} requests have ended in {seconds:.1} s"
                    );
                }
                _ if repetitions.has(signal, Instant::now()) => {}
                // A terminal that closes may send several.
                _ if stop.is_asked() && signal != SIGHUP => std::process::exit(128 + signal),
                _ => stop.ask(),
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)?;
    Ok(())
}
