//! `pollux bench`: a load on a disk, driven by Pollux's own driver, and what it costs.
//!
//! ```text
//! options ── plan, held against the disk ──▶ run ──▶ a job (a thread, a channel) each
//!                                                      load: which request is next   (arrivals, verify)
//!                                                      job: keeps them in flight      (latency)
//!            outcome of all ──▶ report ──▶ table, json
//! ```

mod arrivals;
mod cpu;
mod inside;
mod job;
mod json;
mod latency;
mod load;
mod options;
mod plan;
mod progress;
mod report;
mod run;
mod stop;
mod table;
mod target;
mod units;
mod verify;

use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::options::Output;
use self::plan::Plan;
use self::progress::Progress;
use self::report::Report;
use self::run::Common;
use self::stop::Stop;
use self::target::Target;

pub use self::options::BenchArgs;

type Error = Box<dyn std::error::Error>;

/// Runs the load and prints what it came to.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let cpus = args.process.cpu_list()?;
    let mut of_the_server = cpus.clone();
    of_the_server.rotate_left(usize::from(args.numjobs) % cpus.len().max(1));
    let target = Target::open(args, &of_the_server)?;
    let plan = Plan::new(args, &target.geometry())?;
    let stop = Arc::new(Stop::default());
    watch_signals(Arc::clone(&stop))?;
    let common = Common {
        plan: &plan,
        stop: &stop,
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
    match args.output_format {
        Output::Normal => print!("{}", table::report(&report)),
        Output::Json => println!("{:#}", json::report(&report)),
    }
    match (lost, outcome.error) {
        (_, None) => Ok(()),
        // Requests in flight have failed because of it.
        (Some(lost), Some(_)) => Err(lost.into()),
        (None, Some(error)) => Err(error.into()),
    }
}

/// Ends the run early at the first signal, and the process at the second.
fn watch_signals(stop: Arc<Stop>) -> Result<(), Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = move || {
        for signal in signals.forever() {
            if stop.is_asked() {
                std::process::exit(128 + signal);
            }
            stop.ask();
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)?;
    Ok(())
}
