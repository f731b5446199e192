//! What the server costs, and how late it answers, against how much is asked of it: looking always, never, and for as
//! long as it pays.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use pollux_driver::Waiting;

use super::open_loop::OpenLoop;
use super::site::{Setup, Site};
use super::{Case, Finding, Median, Study, count, only};
use crate::cell::Disk;
use crate::load::microseconds;
use crate::results::plot::{Line, Panel, Plot};

/// The study.
pub struct Curve;

/// How the server looks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Adaptive,
    Always,
    Never,
}

/// So many requests a second to a server that looks in this way.
#[derive(Clone, Copy)]
pub struct Trial {
    disk: Disk,
    rate: u32,
    mode: Mode,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode.name())
    }
}

impl Mode {
    const ALL: [Self; 3] = [Self::Adaptive, Self::Always, Self::Never];

    const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    const fn options(self) -> &'static [&'static str] {
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
const AWAKE: Duration = Duration::from_micros(500);

const CPU: &str = "server CPU %";
const P99: &str = "p99 µs";

impl Study for Curve {
    type Trial = Trial;

    const TITLE: &'static str = "Processor time and latency against load";
    const EXPLANATION: &'static str = "\
An open loop: so many 4 KiB reads a second arrive at fixed times, whether or not those before them have ended, and latencies count from\n\
the time that a request was due. The server looks for work for as long as that pays (`adaptive`), `always`, or `never`; *one / other*.\n\
The client is our driver, polled, on a processor of its own: it looks for completions until the next request is due, and asks for no calls.\n\
It sleeps only while nothing is in flight, and until 500 µs before a request is due; so neither its timer nor its being woken\n\
is in what is measured, and the server pays for being kicked awake, not for waking the client: the stricter case for a server that\n\
looks. At most 64 are in flight; what is due beyond waits, and that counts. *sent k/s* below the rate is a disk that cannot keep up: its\n\
latencies are those of the queue before it. Asked of `adaptive`: at 100 and 1000 a second at most 1.3 times the processor time of\n\
`never`, from 50,000 on p50 and p99 at most 1.2 times those of `always`.\n";
    const RATIOS: &'static [&'static str] = &[CPU, "p50 µs", P99];
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
        let client = OpenLoop::connect(site.socket(), trial.disk, Waiting::Polled, trial.rate)?;
        let mut client = client.awake_for(AWAKE);
        client.run_for(site.time / 4)?;
        client.latencies.reset();
        let (spent, began) = (site.server.cpu_ns()?, Instant::now());
        client.run_for(site.time)?;
        let seconds = began.elapsed().as_secs_f64();
        let spent = Duration::from_nanos(site.server.cpu_ns()?.saturating_sub(spent));
        let latencies = &client.latencies;
        Ok(vec![vec![
            (CPU, 100.0 * spent.as_secs_f64() / seconds),
            ("p50 µs", microseconds(latencies, 0.5)),
            (P99, microseconds(latencies, 0.99)),
            ("sent k/s", count(latencies.len()) / seconds / 1e3),
        ]])
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
        let of_disk = |disk| [CPU, P99].map(|number| panel(disk, number));
        Some(Plot {
            file: "load.svg",
            panels: DISKS.into_iter().flat_map(of_disk).collect(),
        })
    }
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
        name: mode.name(),
        points: its.filter_map(point).collect(),
    }
}
