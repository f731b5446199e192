//! The command line.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pollux::device::{Bounds, Calls, Kicks, Polling, Signal, Tuning};
use pollux_sandbox::Level;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tracing_subscriber::filter::LevelFilter;

use crate::bench::BenchArgs;
use crate::control::{DiskArgs, TopArgs};
use crate::cpus::{self, BadCpus};
use crate::export::ExportArgs;
use crate::log::Format;

/// A virtio-blk stack with both ends of the ring.
#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Debug, Parser)]
#[command(name = "pollux", version, about, long_about = None)]
pub struct Cli {
    /// What is logged: off, error, warn, info, debug or trace, and what is worse. The variable POLLUX_LOG says the same
    /// [default: info; of bench: warn]
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        help_heading = "What it says"
    )]
    pub log_level: Option<LevelFilter>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve disks to virtual machines over vhost-user
    Serve(Box<ServeArgs>),
    /// Ask running daemons for their disks, over their control sockets
    Disk(DiskArgs),
    /// Watch the disks and workers of running daemons, and what keeps a disk from being faster
    Top(TopArgs),
    /// Drive a disk over vhost-user, and measure it
    Bench(Box<BenchArgs>),
    /// Print completions of this command line for a shell, or write its manual pages
    #[command(subcommand)]
    Generate(Generate),
}

/// What is made from the description of the command line.
#[derive(Debug, Subcommand)]
pub enum Generate {
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, pollux.1 and one for each command
    Man {
        /// An existing folder
        folder: PathBuf,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:
  pollux serve --socket-path /run/disk.sock --blk-file disk.img
  pollux serve --socket-path /run/disk.sock --disk memory:size=1G --show-attach
  pollux serve --config /etc/pollux.toml

A file or block device: --disk file:path=F[,OPTION]...; of each option, the first is the default
  cache=writeback|none|writethrough      the page cache, past it (O_DIRECT), or through it at once
  engine=auto|io_uring|threads           what does I/O that must be waited for; auto: threads only
                                         where there is no io_uring
  inline=on|off                          serve at once what the page cache holds
  buffers=plain|registered               registered: pin ALL guest memory, for direct I/O
  lock=always|running                    running: lock the image only while a guest uses it, so
                                         that the guest can migrate from one daemon to another; on
                                         block devices and network file systems with cache=none only
  format=probe|raw                       probe: refuse images of other formats (qcow2, LUKS, ...), and
                                         keep the guest from making one; raw: serve any bytes
  An image has one writer: QEMU's locks are honoured, and hold QEMU off.

A disk that misbehaves, to see what becomes of it: --disk fault:[seed=N,][log=F,]RULE[,RULE]...,on=SPEC
  RULE       ACTION[,CONDITION]..., for example error=EIO,op=write,every=100
  ACTION     delay=TIME | delay=TIME-TIME | delay=exp:TIME | delay=pareto:TIME
             error=EIO|ENOSPC|EOPNOTSUPP|...
             torn=BYTES|random[,then=fail|ok|hang]    stores only the beginning of a write
             hang=request|device                      never answers it, or anything any more
  CONDITION  op=read+write+flush+discard+write-zeroes+resize  range=BYTES-BYTES  after=N
             every=N  chance=P%  times=N
  TIME       200us, 3ms, 1s
  F          a file to which each request is appended before it reaches the disk below
  pollux serve --socket-path /run/disk.sock --disk fault:seed=7,delay=exp:1ms,error=EIO,chance=0.1%,on=memory:size=1G

Disks made of disks, to any depth; a LEG is a path, MAJOR:MINOR, or any SPEC, in brackets if it holds what would end it
  --disk linear:LEG+LEG...               one after the other
  --disk striped:chunk=64K:LEG,LEG...    in chunks, by turns
  --disk 'table:0 6291456 striped 3 128 a.img 0 b.img 0 c.img 0'    device-mapper's language; lines end by ;

Signals: SIGTERM, SIGINT and SIGHUP end what is in flight and exit with status 0; a second SIGTERM or
SIGINT does not wait, and with nohup, SIGHUP stays ignored. SIGUSR1 prints the counters of all
queues to the log; with --log-format json, as one line of JSON for each queue.";

#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    pub export: ExportArgs,

    #[command(flatten)]
    pub process: ProcessArgs,

    /// Serve the disks that this file describes, in one process (see dist/pollux.toml)
    #[arg(
        long,
        value_name = "FILE.toml",
        conflicts_with = "disk-options",
        help_heading = "Which disk"
    )]
    pub config: Option<PathBuf>,

    /// Answer HTTP on this unix socket, for `pollux disk` and curl: what is served, and what was counted. Only its
    /// owner may connect [default: none]
    #[arg(long, value_name = "PATH", help_heading = "What it says")]
    pub control: Option<PathBuf>,

    /// Answer GET /metrics on this TCP address, for Prometheus, and nothing else: 127.0.0.1:9464 [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "What it says")]
    pub metrics_listen: Option<SocketAddr>,

    /// Take disks while this runs (`pollux disk add`), with their images and sockets in this folder; may be given
    /// several times. The sandbox leaves these folders open, and the daemon stays until it is told to end
    #[arg(long, value_name = "DIR", help_heading = "Which disk")]
    pub disk_folder: Vec<PathBuf>,

    /// Keep the list of disks that were added in this file, and serve them again after a restart
    #[arg(long, value_name = "FILE.json", help_heading = "Which disk")]
    pub state: Option<PathBuf>,

    /// Print how to attach the disk in QEMU, Cloud Hypervisor and libvirt, then serve
    #[arg(long, help_heading = "What it says")]
    pub show_attach: bool,

    /// Print what this back end can do, as QEMU's conventions ask, and exit
    #[arg(long, help_heading = "What it says")]
    pub print_capabilities: bool,

    /// Format of log lines
    #[arg(long, value_enum, default_value_t, help_heading = "What it says")]
    pub log_format: Format,
}

/// What holds for the whole process, whichever disks it serves.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(next_help_heading = "How it works")]
pub struct ProcessArgs {
    /// Worker threads; queues are spread over them [default: 1]
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    #[serde(deserialize_with = "threads")]
    pub threads: Option<u16>,

    /// CPUs for the workers, one each in turn: 0,2-3 [default: wherever the kernel puts them]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,

    /// Poll for work before sleeping: for as long as that has paid lately, never, or always (one core
    /// per worker) [default: adaptive]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,

    /// The longest empty poll before a sleep, in microseconds, with --poll adaptive [default: 50]
    #[arg(
        allow_negative_numbers = true,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000)
    )]
    #[serde(deserialize_with = "poll_max_us")]
    pub poll_max_us: Option<u32>,

    /// The share of each worker's time that may go into polling, in percent of a core, with --poll adaptive:
    /// 25% [default: 100%]
    #[arg(long, value_name = "PERCENT")]
    pub poll_cpu: Option<Percent>,

    /// Show completions to the driver before new requests are taken, or after [default:
    /// completions-first]
    #[arg(long, value_enum, help_heading = "Mechanisms, to measure with")]
    pub signal: Option<SignalWhen>,

    /// Let the driver kick only while the worker sleeps, or between any two turns [default:
    /// off-while-awake]
    #[arg(long, value_enum, help_heading = "Mechanisms, to measure with")]
    pub kicks: Option<KicksWhen>,

    /// Call a driver that asks for it once it sends no more requests, where that makes more requests a second, or at
    /// once [default: when-quiet]
    #[arg(long, value_enum, help_heading = "Mechanisms, to measure with")]
    pub calls: Option<CallsWhen>,

    /// Give up, before the first frontend is served, whatever serving does not need: as far as the kernel can,
    /// not at all, or not to start where it cannot [default: on]
    #[arg(long, value_enum)]
    pub sandbox: Option<Sandbox>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    On,
    Off,
    Require,
}

fn threads<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    within(from, 1..=256)
}

fn poll_max_us<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    within(from, 0..=1_000_000)
}

/// A number in a file, which has the same bounds there as on the command line.
fn within<'de, D, N>(from: D, bounds: RangeInclusive<N>) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de> + PartialOrd + Display,
{
    let number = N::deserialize(from)?;
    if bounds.contains(&number) {
        return Ok(Some(number));
    }
    let (least, most) = bounds.into_inner();
    Err(D::Error::custom(format_args!(
        "{number} is not in {least}..={most}"
    )))
}

/// A share of the time: `25%`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Percent(u8);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text
            .strip_suffix('%')
            .and_then(|number| number.parse().ok());
        match number {
            Some(percent @ 0..=100) => Ok(Self(percent)),
            _ => Err(format!(
                "{text:?} is no share of a core; write for example 25%, and 100% at most"
            )),
        }
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    Adaptive,
    Never,
    Always,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SignalWhen {
    CompletionsFirst,
    AfterSubmissions,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum KicksWhen {
    OffWhileAwake,
    PerTurn,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CallsWhen {
    WhenQuiet,
    AtOnce,
}

impl ProcessArgs {
    /// These, and where one is absent, that of `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            threads: self.threads.or(other.threads),
            cpus: self.cpus.or(other.cpus),
            poll: self.poll.or(other.poll),
            poll_max_us: self.poll_max_us.or(other.poll_max_us),
            poll_cpu: self.poll_cpu.or(other.poll_cpu),
            signal: self.signal.or(other.signal),
            kicks: self.kicks.or(other.kicks),
            calls: self.calls.or(other.calls),
            sandbox: self.sandbox.or(other.sandbox),
        }
    }

    pub fn tuning(&self) -> Result<Tuning, Unbounded> {
        if self.poll == Some(Poll::Always) {
            let bounds = [
                ("--poll-max-us", self.poll_max_us.is_some()),
                ("--poll-cpu", self.poll_cpu.is_some()),
            ];
            if let Some((option, _)) = bounds.into_iter().find(|(_, set)| *set) {
                return Err(Unbounded { option });
            }
        }
        let polling = match self.poll {
            None | Some(Poll::Adaptive) => Polling::Adaptive,
            Some(Poll::Never) => Polling::Never,
            Some(Poll::Always) => Polling::Always,
        };
        let poll_bounds = Bounds {
            max: self
                .poll_max_us
                .map_or(Bounds::default().max, |us| Duration::from_micros(us.into())),
            cpu: self.poll_cpu.map_or(100, |percent| percent.0),
        };
        let signal = match self.signal {
            None | Some(SignalWhen::CompletionsFirst) => Signal::CompletionsFirst,
            Some(SignalWhen::AfterSubmissions) => Signal::AfterSubmissions,
        };
        let kicks = match self.kicks {
            None | Some(KicksWhen::OffWhileAwake) => Kicks::OffWhileAwake,
            Some(KicksWhen::PerTurn) => Kicks::PerTurn,
        };
        let calls = match self.calls {
            None | Some(CallsWhen::WhenQuiet) => Calls::WhenQuiet,
            Some(CallsWhen::AtOnce) => Calls::AtOnce,
        };
        Ok(Tuning::default()
            .polling(polling)
            .poll_bounds(poll_bounds)
            .signal(signal)
            .kicks(kicks)
            .calls(calls))
    }

    pub fn sandbox(&self) -> Level {
        match self.sandbox {
            None | Some(Sandbox::On) => Level::On,
            Some(Sandbox::Off) => Level::Off,
            Some(Sandbox::Require) => Level::Require,
        }
    }

    /// The CPUs of `--cpus`, in its order.
    pub fn cpu_list(&self) -> Result<Vec<usize>, BadCpus> {
        self.cpus.as_deref().map_or(Ok(Vec::new()), cpus::there)
    }
}

/// A bound on what is to have none.
#[derive(Debug, thiserror::Error)]
#[error(
    "--poll always never sleeps, so {option} cannot bound it; leave one of them out, or say --poll adaptive"
)]
pub struct Unbounded {
    option: &'static str,
}

#[cfg(test)]
mod papers;
#[cfg(test)]
mod tests;
