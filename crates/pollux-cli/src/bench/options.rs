//! What `pollux bench` is asked to do.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgGroup, Args, ValueEnum, ValueHint};
use pollux::disk::spec::Size;

use super::fio;
use crate::export::Scope;
use crate::limits::requests;
use crate::process::{MECHANISMS, ProcessArgs, Sandbox, below_zero, from_to};

const EXAMPLES: &str = "\
Examples:
  pollux bench --disk memory:size=1G --rw randread --iodepth 16
  pollux bench --disk file:path=disk.img,cache=none --rw randrw --verify crc32c --runtime 1m
  pollux bench --socket /run/disk.sock --rw randread --rate-iops 1000 --completion call
  pollux bench --disk null:size=1G --iodepth 16 --hipri-percent 50 --output-format json

Options have fio's names; these differ:
  --runtime      always as long as this, also when all of --size has been used: it is used again;
                 requests in flight at its end are waited for
  --size         of the disk, for all jobs together: each has a part of its own
  --rate-iops    per job, reads and writes together, as an open loop: a request is due at its time,
                 whatever became of the ones before, and its latency counts from then
  --output-format json has one entry in jobs[], which is all jobs together, and an object `pollux`

Whatever --rw writes, and --verify, replaces what is on the disk, without asking.
Ctrl-C ends early and prints what was measured until then; a second Ctrl-C does not wait. Where no
request ends for 5 s after the first Ctrl-C, the run ends without a report.
SIGUSR1 prints how many requests have ended.";

#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
#[command(next_help_heading = "Load")]
#[command(mut_args(below_zero))]
#[command(mut_args(of_the_server))]
#[command(mut_args(fio::underscored))]
#[group(skip)]
#[command(group(ArgGroup::new("target").required(true).args(["socket", "disk", "filename"])))]
pub struct BenchArgs {
    /// Drive the server that listens on this unix socket; --rw of a kind that writes DESTROYS what is
    /// on its disk
    #[arg(long, value_name = "PATH", help_heading = "Which disk")]
    pub socket: Option<PathBuf>,

    /// Serve this disk from inside the process, over a real vhost-user socket, and drive that; for
    /// SPEC see `pollux serve --help`
    #[arg(long, value_name = "SPEC", help_heading = "Which disk")]
    pub disk: Option<String>,

    /// fio's words for --disk file:path=FILE
    #[arg(
        long,
        value_name = "FILE",
        value_parser = NonEmptyStringValueParser::new(),
        value_hint = ValueHint::FilePath,
        help_heading = "Which disk"
    )]
    pub filename: Option<String>,

    /// fio's words for cache=none of --filename: past the page cache
    #[arg(
        long,
        value_name = "0|1",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = zero_or_one,
        help_heading = "Which disk"
    )]
    pub direct: Option<bool>,

    /// What to do
    #[arg(long, alias = "readwrite", value_enum, default_value_t = Rw::Read)]
    pub rw: Rw,

    /// Percent of the requests of --rw rw or randrw that read [default: 50]
    #[arg(long, value_name = "N", value_parser = from_to(0_u8..=100))]
    pub rwmixread: Option<u8>,

    /// Bytes of a request; k, m and g are powers of 1024
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "4k")]
    pub bs: Size,

    /// Requests that a job has in flight at most
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_to(1_u16..=1024))]
    pub iodepth: u16,

    /// Entries of each ring, a power of two from 4 to 1024 [default: 256, or more if --iodepth needs it]
    #[arg(long, value_name = "N", value_parser = queue_size)]
    pub queue_size: Option<u16>,

    /// Jobs: a thread each, with a queue of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = from_to(1_u16..=256))]
    pub numjobs: u16,

    /// For how long: 500ms, 5s, 2m, 1h; seconds where no unit is given
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = runtime)]
    pub runtime: Duration,

    /// For how long the load runs before it is measured
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub ramp_time: Duration,

    /// For how long to wait for a server that goes away; once it is back, it is handed what was in flight
    /// [default: end with an error]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["disk", "filename"], value_parser = reconnect)]
    pub reconnect: Option<Duration>,

    /// Use only this much of the disk, from its beginning [default: all of it]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Size>,

    /// Requests a second that are due in each job, whether or not the server keeps up; those beyond --iodepth wait for
    /// one to end [default: the next one whenever one has ended]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub rate_iops: Option<NonZeroU32>,

    /// How a job waits for its requests
    #[arg(long, value_enum, default_value_t = Waiting::Adaptive)]
    pub completion: Waiting,

    /// This percentage of the requests is polled, the others are call-driven, on the same queue;
    /// their latencies are reported apart. A job polls while a polled one is in flight, and sleeps
    /// otherwise
    #[arg(long, value_name = "N", conflicts_with = "completion", value_parser = from_to(0_u8..=100))]
    pub hipri_percent: Option<u8>,

    /// Check what is read: each block written says where it belongs and which write it is. Jobs that
    /// only read write all of their part first; jobs that write read it back at the end
    #[arg(long, value_enum, value_name = "HOW")]
    pub verify: Option<Verify>,

    /// All jobs use one queue, behind one lock
    #[arg(long)]
    pub share_queue: bool,

    /// What is printed at the end
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub output_format: Output,

    /// Write it to this file instead
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub process: ProcessArgs,

    /// Which legs of a disk made of disks the server of --disk polls [default: own-in-flight]
    #[arg(long, value_enum, value_name = "SCOPE", requires = "disk", help_heading = MECHANISMS)]
    pub poll_scope: Option<Scope>,

    /// With --share-queue: kick the device after the lock of the queue is released, or while it is
    /// held. With this option the times for which the lock was held and waited for are recorded, which
    /// slows every request down [default: released, and nothing is recorded]
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        requires = "share_queue",
        help_heading = MECHANISMS
    )]
    pub kick_lock: Option<KickLock>,
}

impl BenchArgs {
    /// The disk that is served from inside, in words of `--disk`.
    pub fn spec(&self) -> Result<Option<String>, &'static str> {
        let Some(file) = &self.filename else {
            return match self.direct {
                None => Ok(self.disk.clone()),
                Some(_) => Err(
                    "--direct is for --filename; give it to the disk: --disk file:path=FILE,cache=none",
                ),
            };
        };
        let path = file.replace(',', ",,");
        let cache = if self.direct == Some(true) {
            ",cache=none"
        } else {
            ""
        };
        Ok(Some(format!("file:path={path}{cache}")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Read one block after the other
    Read,
    /// Write one block after the other
    Write,
    /// Both, each one block after the other
    #[value(name = "rw", alias = "readwrite")]
    Readwrite,
    /// Read at random
    Randread,
    /// Write at random
    Randwrite,
    /// Both, at random
    Randrw,
}

impl Rw {
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Randread) || self.mixes()
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Randwrite) || self.mixes()
    }

    pub fn mixes(self) -> bool {
        matches!(self, Self::Readwrite | Self::Randrw)
    }

    pub fn random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Waiting {
    /// Poll all the time
    Polled,
    /// Sleep until the device calls
    Call,
    /// Poll for as long as that has paid lately, then sleep until the device calls
    Adaptive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    Crc32c,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KickLock {
    Released,
    Held,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table
    #[default]
    Normal,
    /// JSON in fio's layout, and an object `pollux` for what fio cannot know
    Json,
}

/// The options that `pollux serve` has, too, and what they are for here.
fn of_the_server(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "cpus" => option.help_heading("Load").help(
            "CPUs for the jobs and then, with --disk, for the server's workers, one each in turn and \
             round again: 0,2-3 [default: wherever the kernel puts them]",
        ),
        "threads" | "poll" | "poll_max_us" | "poll_cpu" => {
            option.help_heading("The server of --disk")
        }
        // What drives a disk is no daemon, and confines neither itself nor the server of --disk.
        "sandbox" => option.hide(true).value_parser(|_: &str| {
            Err::<Sandbox, _>("only `pollux serve` confines itself; leave it out")
        }),
        _ => option,
    }
}

/// How an option of `value_enum` is written.
pub fn name(value: impl ValueEnum + Copy) -> String {
    let value = value.to_possible_value().expect("none is skipped");
    value.get_name().to_owned()
}

fn zero_or_one(text: &str) -> Result<bool, &'static str> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0 or 1"),
    }
}

fn queue_size(text: &str) -> Result<u16, &'static str> {
    let fits = |entries: &u16| entries.is_power_of_two() && (4..=1024).contains(entries);
    let size = text.parse().ok().filter(fits);
    size.ok_or("give a power of two from 4 to 1024")
}

fn runtime(text: &str) -> Result<Duration, &'static str> {
    let some = Some(time(text)?).filter(|time| !time.is_zero());
    some.ok_or("nothing can be measured in no time; write for example 5s")
}

fn reconnect(text: &str) -> Result<Duration, &'static str> {
    let some = Some(time(text)?).filter(|time| !time.is_zero());
    some.ok_or("leave --reconnect out not to wait")
}

fn time(text: &str) -> Result<Duration, &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        _ if digits.is_empty() => return Err("a time begins with a number; write for example 5s"),
        _ if unit.starts_with(['.', ',']) => {
            return Err("a time is a whole number; write it in a smaller unit, for example 200ms");
        }
        _ if unit.contains(|c: char| c.is_ascii_digit()) => {
            return Err("a time has one unit; write all of it in the smaller one, for example 90s");
        }
        _ => return Err("the units of time are ms, s, m and h; write for example 500ms or 2m"),
    };
    let number = match digits.parse::<u32>() {
        Ok(number) => number,
        Err(_) if digits.is_empty() => return Err("no time is given; write for example 5s"),
        Err(_) => return Err("that is too long; write for example 2h"),
    };
    Ok(Duration::from_millis(u64::from(number) * unit))
}

fn rate(text: &str) -> Result<NonZeroU32, &'static str> {
    let rate = requests(text).and_then(|rate| NonZeroU32::new(rate.try_into().ok()?));
    rate.ok_or("give a number from 1 on, such as 1000 or 1k, or leave it out for as many as the server completes")
}

#[cfg(test)]
pub mod tests;
