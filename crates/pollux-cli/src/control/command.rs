//! `pollux disk`: what running daemons serve, for people and for scripts.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pollux::disk::spec::Size;
use serde::Serialize;

use super::client::{get, named};
use super::table::{Align, table};
use crate::model::{DiskStats, Frontend, Outcomes};
use crate::signals;
use crate::units::{bytes, float};

mod add;
mod limit;
mod listed;
mod remove;
mod resize;
mod trace;

use add::AddArgs;
pub use listed::lossy;
use listed::{Answers, Error, Listed, ask_all, one};

const STATS_HELP: &str = r#"Columns, of all queues of a disk together:
  READS, WRITES    reads and writes that succeeded
  FLUSHES          flushes that succeeded
  OTHERS           discards, zeroed ranges and questions for the serial number that succeeded
  FAILED           requests of any kind that failed, or that the disk does not know
  READ, WRITTEN    bytes of the reads and writes that succeeded
  KICKS            notifications from the driver that reached the worker; several at once are one
  CALLS            notifications to the driver
  SLEEPS           sleeps of the worker over the disk's queues; an idle queue does not count them

As many KICKS as requests: the worker sleeps between them; as many CALLS: the driver does.
--output json has more counters. The page "Measuring" of the book says what to conclude from them."#;

#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Args, Debug)]
pub struct DiskArgs {
    #[command(subcommand)]
    action: Action,

    /// The control socket of a daemon, or a folder with those of several, as NAME.control
    /// [default: $XDG_RUNTIME_DIR/pollux, or /run/pollux]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        help_heading = "Which daemon"
    )]
    control: Option<PathBuf>,

    /// What is printed
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        help_heading = "Output"
    )]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The disks of all daemons
    List,
    /// Add a disk to a daemon that has a --disk-folder; the same once more changes nothing
    Add(Box<AddArgs>),
    /// Remove a disk that no guest uses
    Remove {
        /// The disk
        name: String,

        /// Also one that a guest uses: it is disconnected once its requests in flight have ended
        #[arg(long)]
        force: bool,
    },
    /// Make a disk larger while it is used; its guest sees the new size at once
    Resize {
        /// The disk
        name: String,

        /// How large its file is to be, as 20G [default: as large as its file or device has become]
        size: Option<Size>,
    },
    /// Limit the requests and bytes a second of a disk, from now on
    Limit {
        /// The disk
        name: String,

        /// iops-total=5000, bps-write=100M or bps-write=none, also iops-read, iops-write, bps-total and bps-read; with
        /// -max, how many at once after a pause; `none` lifts all limits [default: only print them]
        #[arg(value_name = "LIMIT=N")]
        limits: Vec<String>,
    },
    /// Count how long requests of a disk take, from now on, for `pollux top` and Prometheus
    Latencies {
        /// The disk
        name: String,

        /// Whether they are counted
        #[arg(value_name = "on|off")]
        wanted: Switch,
    },
    /// Print the requests of a disk one by one: where, how long and with what result, never what was read or written
    Trace {
        /// The disk
        name: String,

        #[command(flatten)]
        order: trace::Order,
    },
    /// What disks have counted since their daemons were started
    #[command(after_help = STATS_HELP)]
    Stats {
        /// The disk [default: all]
        name: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// From now on and from zero; costs a read of the clock for each batch of requests
    On,
    /// Not any more
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For scripts
    Json,
}

/// What a disk has counted, and where.
#[derive(Debug, Serialize)]
struct Counted {
    #[serde(serialize_with = "lossy")]
    control: PathBuf,
    #[serde(flatten)]
    stats: DiskStats,
}

/// Does what the arguments say.
pub fn run(args: &DiskArgs) -> Result<(), Error> {
    signals::outlive_usr1()?;
    if let Action::Add(what) = &args.action {
        let added = [add::add(what, args.control.as_deref())?];
        return print(&args.output.shown(&added[0], || list(&added))?);
    }
    let answers = ask_all(args.control.as_deref())?;
    print(&act(args, &answers.disks)?)?;
    if matches!(args.action, Action::List) {
        tell_of_missing(&answers);
    }
    if answers.failed == 0 {
        Ok(())
    } else {
        Err(format!("{} of the daemons did not answer", answers.failed).into())
    }
}

/// Names the disks that no table shows.
fn tell_of_missing(answers: &Answers) {
    for (control, names) in &answers.missing {
        tracing::warn!(
            "{}: on its list, but could not be opened: {}; its log says why, and `pollux disk remove NAME` takes one \
             off the list",
            control.display(),
            names.join(", ")
        );
    }
}

fn print(text: &str) -> Result<(), Error> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Does that with one of the `disks`, or with all, and says what has come of it.
fn act(args: &DiskArgs, disks: &[Listed]) -> Result<String, Error> {
    let changed = match &args.action {
        Action::Add(_) => unreachable!("it is not among them"),
        Action::List => return args.output.shown(&disks, || list(disks)),
        Action::Remove { name, force } => {
            let removed = remove::remove(disks, args.control.as_deref(), name, *force)?;
            return args.output.shown(&removed, || removed.told());
        }
        Action::Resize { name, size } => {
            resize::resize(one(disks, name)?, size.map(|size| size.0))?
        }
        Action::Limit { name, limits } => {
            let limited = limit::change(one(disks, name)?, limits)?;
            return args.output.shown(&limited, || limit::show(&limited.disk));
        }
        Action::Latencies { name, wanted } => {
            let changed = limit::latencies(one(disks, name)?, *wanted == Switch::On)?;
            return args.output.shown(&changed, || limit::told(&changed.disk));
        }
        Action::Trace { name, order } => {
            let text = trace::trace(one(disks, name)?, order, args.output == Output::Json)?;
            io::stdout().write_all(&text)?;
            return Ok(String::new());
        }
        Action::Stats { name } => {
            let counted = count(disks, name.as_deref())?;
            return args.output.shown(&counted, || counters(&counted));
        }
    };
    let table = || list(std::slice::from_ref(&changed));
    args.output.shown(&changed, table)
}

/// What the disks have counted, or the one called `name`.
fn count(disks: &[Listed], name: Option<&str>) -> Result<Vec<Counted>, Error> {
    let wanted = match name {
        Some(name) => vec![one(disks, name)?],
        None => disks.iter().collect(),
    };
    let count = |listed: &Listed| {
        let path = format!("/v1/disks/{}/stats", listed.disk.name);
        let stats = get(&listed.control, &path).map_err(|error| named(&listed.control, &error))?;
        let control = listed.control.clone();
        Ok(Counted { control, stats })
    };
    wanted.into_iter().map(count).collect()
}

impl Output {
    /// A value in JSON, or the `table` of it.
    fn shown(self, of: &impl Serialize, table: impl FnOnce() -> String) -> Result<String, Error> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(of)? + "\n",
            Self::Table => table(),
        })
    }
}

fn list(disks: &[Listed]) -> String {
    let row = |Listed { control, disk }: &Listed| {
        [
            disk.name.clone(),
            bytes(float(disk.bytes)),
            if disk.read_only { "ro" } else { "rw" }.to_owned(),
            disk.block_size.to_string(),
            disk.queues.to_string(),
            match &disk.frontend {
                Some(Frontend { pid: Some(pid), .. }) => format!("pid {pid}"),
                Some(_) => "pid unknown".to_owned(),
                None => "-".to_owned(),
            },
            disk.socket.clone(),
            control.display().to_string(),
        ]
    };
    let rows: Vec<_> = disks.iter().map(row).collect();
    let heads = [
        ("DISK", Align::Left),
        ("SIZE", Align::Right),
        ("ACCESS", Align::Left),
        ("BLOCK", Align::Right),
        ("QUEUES", Align::Right),
        ("FRONTEND", Align::Left),
        ("SOCKET", Align::Left),
        ("CONTROL", Align::Left),
    ];
    table(heads, &rows)
}

fn counters(counted: &[Counted]) -> String {
    let row = |Counted { stats, .. }: &Counted| {
        let total = &stats.total;
        let requests = &total.requests;
        let all = requests.all();
        let ended: u64 = all.iter().map(Outcomes::total).sum();
        let failed = ended - all.iter().map(|kind| kind.ok).sum::<u64>();
        let [_, _, _, others @ ..] = all;
        let others: u64 = others.iter().map(|kind| kind.ok).sum();
        [
            stats.name.clone(),
            requests.read.ok.to_string(),
            requests.write.ok.to_string(),
            requests.flush.ok.to_string(),
            others.to_string(),
            failed.to_string(),
            bytes(float(total.bytes_read)),
            bytes(float(total.bytes_written)),
            total.kicks.to_string(),
            total.calls_sent.to_string(),
            total.sleeps.to_string(),
        ]
    };
    let rows: Vec<_> = counted.iter().map(row).collect();
    let heads = [
        ("DISK", Align::Left),
        ("READS", Align::Right),
        ("WRITES", Align::Right),
        ("FLUSHES", Align::Right),
        ("OTHERS", Align::Right),
        ("FAILED", Align::Right),
        ("READ", Align::Right),
        ("WRITTEN", Align::Right),
        ("KICKS", Align::Right),
        ("CALLS", Align::Right),
        ("SLEEPS", Align::Right),
    ];
    table(heads, &rows)
}
