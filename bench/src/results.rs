//! The outcome of a cell, and of all of them: what is printed, and what is written to files.

use std::fmt::Write;

use serde::Serialize;

use crate::cell::{Cell, Disk};
use crate::machine::Setting;
use crate::measure::Sample;
use crate::statistics::{Estimate, median, range};

/// All samples of one cell, pair by pair.
#[derive(Debug, Serialize)]
pub struct Outcome {
    disk: Disk,
    client: &'static str,
    depth: u16,
    ours: Vec<Sample>,
    theirs: Vec<Sample>,
    /// Our IOPS by theirs, of each pair.
    ratio: Estimate,
    /// Measurements that others disturbed, and that were made again.
    repeated: usize,
    /// Measurements that were disturbed every time, and are among the samples all the same.
    disturbed: usize,
}

/// Who is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is above 1.
    Won,
    /// The interval holds 1.
    Even,
    /// The whole interval is below 1.
    Lost,
}

impl Outcome {
    /// Of the pairs `ours[i]`, `theirs[i]`.
    pub fn new(cell: Cell, ours: Vec<Sample>, theirs: Vec<Sample>, repeated: usize) -> Self {
        let ratio = |(ours, theirs): (&Sample, &Sample)| ours.iops / theirs.iops;
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(ratio).collect();
        let disturbed = ours
            .iter()
            .chain(&theirs)
            .filter(|sample| sample.disturbance.disturbs())
            .count();
        Self {
            disk: cell.disk,
            client: cell.client_name(),
            depth: cell.depth,
            ours,
            theirs,
            ratio: Estimate::bootstrap(&ratios),
            repeated,
            disturbed,
        }
    }

    /// Who is ahead here.
    pub fn verdict(&self) -> Verdict {
        if self.ratio.low > 1.0 {
            Verdict::Won
        } else if self.ratio.high < 1.0 {
            Verdict::Lost
        } else {
            Verdict::Even
        }
    }

    /// The cells of its row, as in [`HEADINGS`].
    pub fn row(&self) -> [String; 10] {
        let disk = format!("{:?}", self.disk).to_lowercase();
        let Estimate { median, low, high } = self.ratio;
        let verdict = match self.verdict() {
            Verdict::Won => "",
            Verdict::Even => "even",
            Verdict::Lost => "LOST",
        };
        let cpu =
            |samples: &[Sample], of: fn(&Sample) -> f64| format!("{:.2}", median_of(samples, of));
        let server = |sample: &Sample| sample.server_us;
        let client = |sample: &Sample| sample.client_us;
        [
            disk,
            self.client.to_owned(),
            self.depth.to_string(),
            kilo_iops(&self.ours),
            kilo_iops(&self.theirs),
            format!("{median:.2} ({low:.2}–{high:.2})"),
            verdict.to_owned(),
            format!(
                "{} / {}",
                cpu(&self.ours, server),
                cpu(&self.theirs, server)
            ),
            format!(
                "{} / {}",
                cpu(&self.ours, client),
                cpu(&self.theirs, client)
            ),
            format!("{} / {}", self.repeated, self.disturbed),
        ]
    }
}

/// What is in each column of a row.
pub const HEADINGS: [&str; 10] = [
    "disk",
    "client",
    "depth",
    "k IOPS ours",
    "k IOPS peer",
    "ratio (95 %)",
    "",
    "server µs/IO",
    "client µs/IO",
    "repeated/disturbed",
];

fn median_of(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    median(&samples.iter().map(of).collect::<Vec<_>>())
}

fn kilo_iops(samples: &[Sample]) -> String {
    let thousands: Vec<f64> = samples.iter().map(|sample| sample.iops / 1000.0).collect();
    let (least, greatest) = range(&thousands);
    format!("{:.0} [{least:.0}–{greatest:.0}]", median(&thousands))
}

/// A table for the eye: columns as wide as they must be.
pub fn plain_table(rows: &[[String; 10]]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let all: Vec<&[String; 10]> = std::iter::once(&headings).chain(rows).collect();
    let width = |column: usize| {
        all.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for row in all {
        for (cell, width) in row.iter().zip(&widths) {
            write!(text, "{cell:<width$}  ").expect("a string takes everything");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Everything, for scripts.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Where it was measured.
    pub setting: Setting,
    /// The names of the two servers.
    pub names: [String; 2],
    /// Pairs of each cell.
    pub pairs: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// What each cell gave.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// The file `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let Self {
            setting,
            names,
            pairs,
            seconds,
            outcomes,
        } = self;
        let mut text = format!(
            "# Results\n\
             Written by `pollux-bench`; do not edit. 4 KiB random reads on one queue by an independent client (crate `blkio`),\n\
             server and client on a processor each; {pairs} pairs of {seconds} s, the two servers in turn, each started afresh.\n\n\
             - machine: {}, {}\n- kernel: {}\n- commit: {}\n- ours: `{}` ({})\n- peer: `{}` ({})\n- command: `{}`\n\n",
            setting.processor,
            setting.virtualization,
            setting.kernel,
            setting.commit,
            names[0],
            setting.versions[0],
            names[1],
            setting.versions[1],
            setting.command,
        );
        text.push_str(EXPLANATION);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(&HEADINGS.map(str::to_owned)));
        text.push_str(&line(&HEADINGS.map(|_| "---".to_owned())));
        for outcome in outcomes {
            text.push_str(&line(&outcome.row()));
        }
        let lost = outcomes
            .iter()
            .filter(|outcome| outcome.verdict() != Verdict::Won)
            .count();
        writeln!(
            text,
            "\nRows that we do not win: {lost} of {}.",
            outcomes.len()
        )
        .expect("a string takes everything");
        text
    }
}

const EXPLANATION: &str = "\
IOPS are medians with the least and the greatest; the ratio is the median over the pairs, with its 95 % bootstrap interval.
`LOST` marks a row whose whole interval is below 1, `even` one whose interval holds 1. Processor time is that of all threads
of the server, and of the client's one thread. `repeated` measurements were disturbed by other load and made again;
`disturbed` ones were so each time, and count.\n
The peer's `null` is `null-co` with `read-zeroes=off`, which touches no data, as ours does not. It has no disk in memory: against
our `memory` stands a file on tmpfs through the page cache (`driver=file,aio=io_uring`, its fastest way there); both are written
once before. `qsd-iothread` serves from an iothread, which polls before it sleeps: as fast as its main loop (`qsd`), or faster.\n
A *polling* client spins on the used index and asks for no calls; a *blocking* one asks for a call and sleeps whenever nothing
is there. Depth 1 with a blocking client measures wake-ups, and little else.\n\n";
