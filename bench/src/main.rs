//! Pollux and a peer, side by side: the same client, the same machine, in turn.
//!
//! Two servers are never measured at the same time, nor far apart: for each cell they take turns,
//! A B A B, and only the ratio within a pair counts. What drifts (the clock of the processor, the
//! neighbours on the host) hits both of a pair alike. See `RESULTS.md` for how to read the numbers.

mod cell;
mod contender;
mod machine;
mod measure;
mod pinned;
mod quiet;
mod results;
mod statistics;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use pollux_tests::process::Process;

use cell::Cell;
use contender::Contender;
use measure::{Plan, Sample};
use results::{Outcome, Results, plain_table};

/// Measure Pollux against qemu-storage-daemon: 4 KiB random reads, one queue, a processor each.
#[derive(Debug, Parser)]
#[command(name = "pollux-bench")]
struct Options {
    /// Three short pairs of each cell: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Pairs of measurements of each cell [default: 7, quick: 3]
    #[arg(long)]
    pairs: Option<usize>,
    /// Seconds of each measurement [default: 2, quick: 0.5]
    #[arg(long)]
    runtime: Option<f64>,
    /// Only cells whose name contains this, e.g. `null/polling` or `/16`
    #[arg(long, default_value = "")]
    only: String,
    /// The processor of the servers
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// The processor of the client
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Our server: `pollux OPTION…`, `qsd [PROGRAM]` or `qsd-iothread [PROGRAM]`
    #[arg(long, default_value = "pollux")]
    ours: Contender,
    /// What it is compared with, likewise
    #[arg(long, default_value = "qsd-iothread")]
    peer: Contender,
    /// How often a disturbed measurement is made again
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Write everything to this file, for scripts
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the table to this file [default: bench/RESULTS.md, after a run that is neither quick nor partial]
    #[arg(long)]
    results: Option<PathBuf>,
}

impl Options {
    fn pairs(&self) -> usize {
        self.pairs.unwrap_or(if self.quick { 3 } else { 7 }).max(1)
    }

    fn seconds(&self) -> f64 {
        self.runtime.unwrap_or(if self.quick { 0.5 } else { 2.0 })
    }

    fn results(&self) -> Option<PathBuf> {
        let whole = !self.quick && self.only.is_empty();
        let standard = || whole.then(|| concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md").into());
        self.results.clone().or_else(standard)
    }

    fn plan(&self) -> Plan {
        let runtime = Duration::from_secs_f64(self.seconds());
        Plan {
            warm_up: runtime / 4,
            runtime,
            client_cpu: self.client_cpu,
        }
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let contenders = [options.ours.clone(), options.peer.clone()];
    let cells: Vec<Cell> = Cell::all()
        .into_iter()
        .filter(|cell| cell.to_string().contains(&options.only))
        .collect();
    let mut outcomes = vec![];
    for cell in cells {
        let outcome = compare(&options, &contenders, cell)?;
        eprint!("{}", plain_table(&[outcome.row()]));
        outcomes.push(outcome);
    }

    let rows: Vec<_> = outcomes.iter().map(Outcome::row).collect();
    println!(
        "\n{} against {}\n{}",
        contenders[0].name,
        contenders[1].name,
        plain_table(&rows)
    );
    let results = Results {
        setting: machine::Setting::here(&contenders),
        names: contenders
            .each_ref()
            .map(|contender| contender.name.clone()),
        pairs: options.pairs(),
        seconds: options.seconds(),
        outcomes,
    };
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&results)?)?;
    }
    if let Some(path) = options.results() {
        fs::write(&path, results.markdown())?;
        println!("written to {}", path.display());
    }
    Ok(())
}

/// The pairs of one cell.
fn compare(options: &Options, contenders: &[Contender; 2], cell: Cell) -> io::Result<Outcome> {
    let mut samples = [vec![], vec![]];
    let mut repeated = 0;
    for pair in 1..=options.pairs() {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let (sample, again) = undisturbed(options, contender, cell)?;
            repeated += again;
            eprintln!(
                "{cell} {pair}/{}: {} {:.0} k IOPS",
                options.pairs(),
                contender.name,
                sample.iops / 1000.0
            );
            samples.push(sample);
        }
    }
    let [ours, theirs] = samples;
    Ok(Outcome::new(cell, ours, theirs, repeated))
}

/// A sample that nobody disturbed, if the machine allows, and how often it was made again.
fn undisturbed(
    options: &Options,
    contender: &Contender,
    cell: Cell,
) -> io::Result<(Sample, usize)> {
    let mut again = 0;
    loop {
        quiet::wait_for_quiet(Duration::from_secs(5))?;
        let sample = sample(options, contender, cell)?;
        if again == options.repeats || !sample.disturbance.disturbs() {
            return Ok((sample, again));
        }
        again += 1;
        let others = 100.0 * sample.disturbance.others;
        eprintln!("{cell}: others used {others:.0} % of a processor; once more");
    }
}

/// Starts the server, measures it once, and ends it.
fn sample(options: &Options, contender: &Contender, cell: Cell) -> io::Result<Sample> {
    let folder = tempfile::tempdir_in(Path::new("/dev/shm"))?;
    let server = contender.start(cell.disk, folder.path(), options.server_cpu)?;
    measure::fill(server.socket(), cell.disk)?;
    let process = Process::new(server.pid());
    let sample = measure::measure(server.socket(), process, cell, options.plan());
    sample.map_err(|error| {
        io::Error::other(format!(
            "{} on {cell}: {error}\n{}",
            contender.name,
            server.log()
        ))
    })
}
