//! What one cell gave, and its rows in the two tables.

use serde::Serialize;

use super::table::Table;
use crate::cell::Cell;
use crate::measure::Sample;
use crate::spdk::{Beside, Published};
use crate::statistics::{Estimate, median, range};

/// All samples of one cell, pair by pair.
#[derive(Debug, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    ours: Vec<Sample>,
    theirs: Vec<Sample>,
    /// Our IOPS by theirs, of each pair.
    ratio: Estimate,
    /// Processor time of our client by theirs, for each request of each pair.
    client_cpu: Estimate,
    /// Our median beside SPDK's published figure, where there is one.
    beside_spdk: Option<Beside>,
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

type Of = fn(&Sample) -> f64;
type Perhaps = fn(&Sample) -> Option<f64>;

impl Outcome {
    /// Of the pairs `ours[i]`, `theirs[i]`.
    pub fn new(cell: Cell, ours: Vec<Sample>, theirs: Vec<Sample>, repeated: usize) -> Self {
        let iops: Of = |sample| sample.throughput.iops;
        let ratio = |of: Of| {
            let pairs = ours.iter().zip(&theirs);
            let ratios = pairs.map(|(ours, theirs)| of(ours) / of(theirs));
            Estimate::bootstrap(&ratios.collect::<Vec<_>>())
        };
        let all = ours.iter().chain(&theirs);
        let disturbed = all.filter(|sample| sample.throughput.disturbance.disturbs());
        Self {
            cell,
            ratio: ratio(iops),
            client_cpu: ratio(|sample| sample.throughput.client.cpu_us),
            beside_spdk: Published::of(cell).map(|published| Beside {
                ratio: median_of(&ours, iops) / 1000.0 / published.kilo_iops,
                asked: published.asked,
            }),
            repeated,
            disturbed: disturbed.count(),
            ours,
            theirs,
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

    /// Beside SPDK, where anything was asked of us there: was it reached?
    pub fn reaches_what_is_asked(&self) -> Option<bool> {
        let beside = self.beside_spdk?;
        beside.asked.map(|_| beside.suffices())
    }

    /// The table of speeds, without rows.
    pub fn speeds([one, other]: [&str; 2]) -> Table {
        Table::new(&[
            "cell",
            &format!("k IOPS {one}"),
            &format!("k IOPS {other}"),
            "ratio (95 %)",
            "",
            "client CPU (95 %)",
            "SPDK",
            "ours/SPDK, asked",
            "p50 µs",
            "p99 µs",
            "redone/noisy",
        ])
    }

    /// Its row there.
    pub fn add_speeds(&self, to: &mut Table) {
        let verdict = match self.verdict() {
            Verdict::Won => "",
            Verdict::Even => "even",
            Verdict::Lost => "LOST",
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let figure = Published::of(self.cell).map(|published| published.kilo_iops);
        let same_server = self.cell.contest.server().is_some();
        to.add([
            self.cell.to_string(),
            kilo_iops(&self.ours),
            kilo_iops(&self.theirs),
            self.ratio.to_string(),
            verdict.to_owned(),
            or_none(same_server.then(|| self.client_cpu.to_string())),
            or_none(figure.map(|figure| figure.to_string())),
            or_none(self.beside_spdk.map(|beside| beside.to_string())),
            self.both(|sample| Some(sample.latency.p50_us)),
            self.both(|sample| Some(sample.latency.p99_us)),
            format!("{}/{}", self.repeated, self.disturbed),
        ]);
    }

    /// The table of costs, without rows.
    pub fn costs() -> Table {
        Table::new(&[
            "cell",
            "server µs",
            "client µs",
            "kicks",
            "calls",
            "server sleeps",
            "client sleeps",
            "server syscalls",
            "client syscalls",
        ])
    }

    /// Its row there.
    pub fn add_costs(&self, to: &mut Table) {
        to.add([
            self.cell.to_string(),
            self.both(|sample| Some(sample.throughput.server.cpu_us)),
            self.both(|sample| Some(sample.throughput.client.cpu_us)),
            self.both(Sample::kicks),
            self.both(Sample::calls),
            self.both(|sample| Some(sample.throughput.server.sleeps)),
            self.both(|sample| Some(sample.throughput.client.sleeps)),
            self.both(|sample| Some(sample.system_calls?.server)),
            self.both(|sample| Some(sample.system_calls?.client)),
        ]);
    }

    /// The medians of ours and theirs.
    fn both(&self, of: Perhaps) -> String {
        let one = |samples: &[Sample]| {
            let values: Vec<f64> = samples.iter().filter_map(of).collect();
            if values.is_empty() {
                "-".to_owned()
            } else {
                short(median(&values))
            }
        };
        format!("{} / {}", one(&self.ours), one(&self.theirs))
    }
}

fn median_of(samples: &[Sample], of: Of) -> f64 {
    median(&samples.iter().map(of).collect::<Vec<_>>())
}

fn kilo_iops(samples: &[Sample]) -> String {
    let thousands = samples.iter().map(|sample| sample.throughput.iops / 1000.0);
    let thousands: Vec<f64> = thousands.collect();
    let (least, greatest) = range(&thousands);
    let median = median(&thousands);
    if median < 100.0 {
        format!("{median:.1} [{least:.1}–{greatest:.1}]")
    } else {
        format!("{median:.0} [{least:.0}–{greatest:.0}]")
    }
}

/// Three digits, and nothing where it is nothing.
pub fn short(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        small if small < 0.0005 => "<.001".to_owned(),
        small if small < 0.1 => format!("{small:.3}"),
        middle if middle < 10.0 => format!("{middle:.2}"),
        large if large < 100.0 => format!("{large:.1}"),
        larger => format!("{larger:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.0001, 0.0214, 0.5, 2.3456, 23.456, 234.56].map(short);
        assert_eq!(
            shown,
            ["0", "<.001", "0.021", "0.50", "2.35", "23.5", "235"]
        );
    }
}
