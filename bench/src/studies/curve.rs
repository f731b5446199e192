//! What the server costs, and how late it answers, against how much is asked of it: looking always, never, and for as
//! long as it pays.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use pollux_driver::Waiting;
use pollux_load::{Client, Job, microseconds};

use super::open_loop;
use super::site::{Setup, Site};
use super::study::{Case, Median, Study, count, only};
use crate::cell::Disk;
use crate::measure::Spent;
use crate::results::findings::Finding;
use crate::results::plot::{Line, Panel, Plot};

/// The study.
pub struct Curve;

/// How the server polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Adaptive,
    Always,
    Never,
}

/// So many requests a second to a server that polls in this way.
#[derive(Clone, Copy)]
pub struct Trial {
    disk: Disk,
    rate: u32,
    mode: Mode,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mode.fmt(f)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Mode {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Always, Self::Never];

    const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    /// The server's options for that.
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Adaptive => &["--poll", "adaptive"],
            Self::Always => &["--poll", "always"],
            Self::Never => &["--poll", "never"],
        }
    }
}

const DISKS: [Disk; 2] = [Disk::Null, Disk::Direct];
const RATES: [u32; 5] = [100, 1000, 10_000, 50_000, 100_000];

/// Before a request is due the client is awake for so long: several times what it takes to wake a sleeper.
pub const AWAKE: Duration = Duration::from_micros(500);

/// Headings.
pub const CPU: &str = "server CPU %";
pub const P50: &str = "p50 µs";
pub const P99: &str = "p99 µs";

impl Study for Curve {
    type Trial = Trial;

    const TITLE: &'static str = "Processor time and latency against load";
    const EXPLANATION: &'static str = "\
An open loop: so many 4 KiB reads a second arrive at fixed times, whether or not those before them have ended, and
latencies count from the time that a request was due. The server polls for work for as long as that pays (`adaptive`),
`always`, or `never`; *one / other*. The client is our driver, polled, on a processor of its own: it polls for
completions until the next request is due, and asks for no calls. It sleeps only while nothing is in flight, and until
500 µs before a request is due; so neither its timer nor its being woken is in what is measured, and the server pays
for being kicked awake, not for waking the client: the stricter case for a server that polls. At most 64 are in flight;
what is due beyond waits, and that counts. *sent k/s* below the rate is a disk that cannot keep up: its latencies are
those of the queue before it. *server sleeps* are for each request: below 0.01 its sleep is not in the p99. Asked of
`adaptive`: at 100 and 1000 a second at most 1.3 times the processor time of `never`, from 50,000 on p50 and p99 at
most 1.2 times those of `always`.
";
    const RATIOS: &'static [&'static str] = &[CPU, P50, P99];
    const SHARE_OF_RUNTIME: f64 = 1.5;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let case = |disk, rate| Case {
            name: format!("load/{disk}/{rate}"),
            trials: Mode::ALL.map(|mode| Trial { disk, rate, mode }).into(),
            rows: vec![
                ("adaptive:never", [only(0), only(2)]),
                ("adaptive:always", [only(0), only(1)]),
            ],
        };
        let of_disk = |disk| RATES.map(|rate| case(disk, rate));
        DISKS.into_iter().flat_map(of_disk).collect()
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            options: trial.mode.options(),
            ..Setup::ours(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let (disk, rate) = (trial.disk, trial.rate);
        let mut client = open_loop::connect(site.socket(), disk, Waiting::Polled, rate, AWAKE)?;
        Ok(vec![measure(&mut client, site)?])
    }

    fn plot(medians: &[Median<Trial>]) -> Option<Plot> {
        let panel = |disk, number: &'static str| Panel {
            title: format!("{disk}: {number}"),
            x: "requests a second",
            y: number,
            lines: Mode::ALL
                .map(|mode| line(medians, disk, mode, number))
                .into(),
        };
        let of_number = |number| DISKS.map(|disk| panel(disk, number));
        Some(Plot {
            file: "load.svg",
            panels: [CPU, P50, P99].into_iter().flat_map(of_number).collect(),
        })
    }
}

/// What the server costs under this client, and how late it answers.
pub fn measure<R: Client>(client: &mut Job<R>, site: &Site) -> io::Result<Finding> {
    client.run_for(site.time / 4)?;
    let (before, began) = (Spent::by_servers(&site.servers)?, Instant::now());
    client.run_for(site.time)?;
    let seconds = began.elapsed().as_secs_f64();
    let spent = Spent::by_servers(&site.servers)?;
    let latencies = &client.measured.latencies.all();
    let requests = count(latencies.len());
    let each = before.until(&spent, requests);
    Ok(vec![
        (CPU, each.cpu_us * requests / 1e4 / seconds),
        (P50, microseconds(latencies, 0.5)),
        (P99, microseconds(latencies, 0.99)),
        ("server sleeps", each.sleeps),
        ("sent k/s", requests / seconds / 1e3),
    ])
}

fn line(medians: &[Median<Trial>], disk: Disk, mode: Mode, number: &str) -> Line {
    let its = medians
        .iter()
        .filter(|(trial, _)| trial.disk == disk && trial.mode == mode);
    let point = |(trial, finding): &Median<Trial>| {
        let found = finding.iter().find(|(name, _)| *name == number)?;
        Some((f64::from(trial.rate), found.1))
    };
    Line {
        name: mode.name().to_owned(),
        points: its.filter_map(point).collect(),
    }
}
