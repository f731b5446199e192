//! Options of the whole process, on the command line and in a file.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, Args, ValueEnum};
use pollux::device::{Bounds, Calls, Kicks, Polling, Signal, Tuning, Workers};
use pollux_sandbox::Level;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::cpus::{self, BadCpus};
use crate::log::chain;

/// What programs call the options that switch a mechanism off, to measure against it.
pub const MECHANISMS: &str = "Mechanisms, to measure with";

/// What holds for the whole process, whichever disks it serves.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(next_help_heading = "How it works")]
pub struct ProcessArgs {
    /// Worker threads; queues are spread over them [default: 1]
    #[arg(long, value_name = "N", value_parser = from_to(1_u16..=256))]
    #[serde(deserialize_with = "threads")]
    pub threads: Option<u16>,

    /// CPUs for the workers, one each in turn: 0,2-3 [default: wherever the kernel puts them]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,

    /// Poll for work before sleeping: for as long as that has paid lately, never, or always (one core
    /// per worker) [default: adaptive]
    #[arg(long, value_enum)]
    pub poll: Option<Poll>,

    /// The longest busy-poll before a sleep, in microseconds, with --poll adaptive [default: 50]
    #[arg(long, value_name = "N", value_parser = from_to(0_u32..=1_000_000))]
    #[serde(deserialize_with = "poll_max_us")]
    pub poll_max_us: Option<u32>,

    /// The share of each worker's time that may go into polling, in percent of a core, with --poll adaptive:
    /// 25% [default: 100%]
    #[arg(long, value_name = "PERCENT")]
    pub poll_cpu: Option<Percent>,

    /// Show completions to the driver before new requests are taken, or after [default:
    /// completions-first]
    #[arg(long, value_enum, help_heading = MECHANISMS)]
    pub signal: Option<SignalWhen>,

    /// Let the driver kick only while the worker sleeps, idle queues apart, or between any two turns [default:
    /// off-while-awake]
    #[arg(long, value_enum, help_heading = MECHANISMS)]
    pub kicks: Option<KicksWhen>,

    /// `when-quiet`: delay calls while the driver keeps sending, where that gives more requests a second; `at-once`: call
    /// immediately [default: when-quiet]
    #[arg(long, value_enum, help_heading = MECHANISMS)]
    pub calls: Option<CallsWhen>,

    /// Drop privileges that serving does not need: `on` (as far as the kernel can), `off`, or `require` (refuse to start
    /// otherwise) [default: on]
    #[arg(long, value_enum)]
    pub sandbox: Option<Sandbox>,
}

/// A number below zero is told what is wrong with it: it is a value, and no option.
pub fn below_zero(option: Arg) -> Arg {
    let has_value = option.get_action().takes_values();
    option.allow_negative_numbers(has_value)
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

/// Reads an option that is a whole number of its type: of what is none, or out of `bounds`, it is said what is wanted.
pub fn from_to<N>(bounds: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let (least, most) = (bounds.start(), bounds.end());
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// Reads where to listen.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| {
        "give an address and a port, such as 127.0.0.1:9464; names are not looked up".to_owned()
    })
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
        let bounds = [
            ("--poll-max-us", self.poll_max_us.is_some()),
            ("--poll-cpu", self.poll_cpu.is_some()),
        ];
        match (bounds.into_iter().find(|(_, set)| *set), self.poll) {
            (Some((option, _)), Some(Poll::Always)) => return Err(Unbounded::Always { option }),
            (Some((option, _)), Some(Poll::Never)) => return Err(Unbounded::Never { option }),
            _ => {}
        }
        let polling = match self.poll {
            None | Some(Poll::Adaptive) => Polling::Adaptive,
            Some(Poll::Never) => Polling::Never,
            Some(Poll::Always) => Polling::Always,
        };
        let mut poll_bounds = Bounds::default();
        if let Some(us) = self.poll_max_us {
            poll_bounds.max = Duration::from_micros(us.into());
        }
        if let Some(percent) = self.poll_cpu {
            poll_bounds.cpu = percent.0;
        }
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

    /// The workers, on these `cpus`.
    pub fn start_workers(&self, cpus: &[usize], tuning: Tuning) -> Result<Workers, String> {
        let threads = usize::from(self.threads.unwrap_or(1));
        Workers::start(threads, cpus, tuning).map_err(|error| match &self.cpus {
            Some(list) => format!("--cpus {list}: {}", chain(&error)),
            None => format!("cannot start the workers: {}", chain(&error)),
        })
    }

    /// The CPUs of `--cpus`, in its order.
    pub fn cpu_list(&self) -> Result<Vec<usize>, BadCpus> {
        self.cpus.as_deref().map_or(Ok(Vec::new()), cpus::there)
    }
}

/// A bound on polling that has none.
#[derive(Debug, thiserror::Error)]
pub enum Unbounded {
    /// It has no end.
    #[error(
        "--poll always never sleeps, so {option} cannot bound it; leave one of them out, or say --poll adaptive"
    )]
    Always { option: &'static str },
    /// There is none.
    #[error(
        "--poll never does not poll, so {option} has nothing to bound; leave one of them out, or say --poll adaptive"
    )]
    Never { option: &'static str },
}
