//! What one cell gave, and its rows in the two tables: one for each state of the host.

use std::collections::BTreeMap;

use serde::Serialize;

use super::table::Table;
use crate::cell::Cell;
use crate::measure::{Run, Sample};
use crate::pairing::{Group, State, Tagged, alike};
use crate::statistics::{Estimate, median, range};

/// All samples of one cell.
#[derive(Debug, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    /// The pairs that can be compared, by the state in which they were measured.
    states: Vec<InState>,
    /// All pairs.
    pairs: usize,
    /// Those in no state: the host moved the processors, or was in another state for the one than for the other.
    dropped: usize,
    /// Runs that others disturbed, or without a pair, and that were made again.
    repeated: usize,
    /// Runs that were disturbed every time, and are among the samples all the same.
    disturbed: usize,
}

/// The samples of one cell in one state of the host, pair by pair.
#[derive(Debug, Serialize)]
struct InState {
    state: State,
    ours: Vec<Sample>,
    theirs: Vec<Sample>,
    /// Our IOPS by theirs: of each run, the median of its pairs.
    ratio: Estimate,
    /// Processor time of our client by theirs, for each request, in the same way.
    client_cpu: Estimate,
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
    /// Of all runs.
    pub fn new(cell: Cell, runs: Vec<Run>, repeated: usize, disturbed: usize) -> Self {
        let mut run_of = vec![];
        let mut sides: [Vec<Tagged<Sample>>; 2] = [vec![], vec![]];
        for (number, run) in runs.into_iter().enumerate() {
            run_of.resize(run_of.len() + run[0].len(), number);
            for (all, samples) in sides.iter_mut().zip(run) {
                all.extend(samples);
            }
        }
        let [ours, theirs] = &sides;
        let groups = alike(ours, theirs, |sample| Some(sample.throughput.iops));
        let compared: usize = groups.iter().map(|group| group.pairs.len()).sum();
        let states = groups
            .iter()
            .map(|group| InState::new(group, &sides, &run_of));
        Self {
            cell,
            states: states.collect(),
            pairs: run_of.len(),
            dropped: run_of.len() - compared,
            repeated,
            disturbed,
        }
    }

    /// Its cell.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The medians of both sides, in the state in which most pairs were measured.
    pub fn medians(&self, of: fn(&Sample) -> f64) -> Option<[f64; 2]> {
        let most = self.states.iter().max_by_key(|state| state.ours.len())?;
        let middle = |side: &[Sample]| median(&side.iter().map(of).collect::<Vec<_>>());
        Some([middle(&most.ours), middle(&most.theirs)])
    }

    /// Is the one side ahead in every state?
    pub fn is_won(&self) -> bool {
        let won = |state: &InState| state.verdict() == Verdict::Won;
        !self.states.is_empty() && self.states.iter().all(won)
    }

    /// The states in which it is not ahead, with the ratio in each.
    pub fn not_won(&self) -> impl Iterator<Item = String> {
        let unknown = self
            .states
            .is_empty()
            .then(|| format!("`{}`: no pair", self.cell));
        let open = self.states.iter();
        let open = open.filter(|state| state.verdict() != Verdict::Won);
        let open = open.map(|state| format!("`{}` ({}): {}", self.cell, state.state, state.ratio));
        unknown.into_iter().chain(open)
    }

    /// The table of speeds, without rows.
    pub fn speeds([one, other]: [&str; 2]) -> Table {
        Table::new(&[
            "cell",
            "host",
            &format!("k IOPS {one}"),
            &format!("k IOPS {other}"),
            "ratio (95 %)",
            "",
            "client CPU (95 %)",
            "p50 µs",
            "p99 µs",
            "pairs",
            "dropped/redone/noisy",
        ])
    }

    /// Its rows there.
    pub fn add_speeds(&self, to: &mut Table) {
        let Self {
            cell,
            dropped,
            repeated,
            disturbed,
            ..
        } = self;
        let trouble = format!("{dropped}/{repeated}/{disturbed}");
        let none = || "-".to_owned();
        if self.states.is_empty() {
            let mut row = vec![none(); 11];
            row[0] = cell.to_string();
            row[10] = trouble;
            to.add(row);
            return;
        }
        let same_server = cell.contest.server().is_some();
        for state in &self.states {
            let verdict = match state.verdict() {
                Verdict::Won => "",
                Verdict::Even => "even",
                Verdict::Lost => "LOST",
            };
            to.add([
                cell.to_string(),
                state.state.to_string(),
                kilo_iops(&state.ours),
                kilo_iops(&state.theirs),
                state.ratio.to_string(),
                verdict.to_owned(),
                if same_server {
                    state.client_cpu.to_string()
                } else {
                    none()
                },
                state.both(|sample| Some(sample.latency.p50_us)),
                state.both(|sample| Some(sample.latency.p99_us)),
                format!("{} of {}", state.ours.len(), self.pairs),
                trouble.clone(),
            ]);
        }
    }

    /// The table of costs, without rows.
    pub fn costs() -> Table {
        Table::new(&[
            "cell",
            "host",
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

    /// Its rows there.
    pub fn add_costs(&self, to: &mut Table) {
        for state in &self.states {
            to.add([
                self.cell.to_string(),
                state.state.to_string(),
                state.both(|sample| Some(sample.throughput.server.cpu_us)),
                state.both(|sample| Some(sample.throughput.client.cpu_us)),
                state.both(Sample::kicks),
                state.both(Sample::calls),
                state.both(|sample| Some(sample.throughput.server.sleeps)),
                state.both(|sample| Some(sample.throughput.client.sleeps)),
                state.both(|sample| Some(sample.system_calls?.server)),
                state.both(|sample| Some(sample.system_calls?.client)),
            ]);
        }
    }
}

impl InState {
    fn new(group: &Group, [ours, theirs]: &[Vec<Tagged<Sample>>; 2], run_of: &[usize]) -> Self {
        let of = |side: &[Tagged<Sample>]| -> Vec<Sample> {
            group.pairs.iter().map(|&pair| side[pair].found).collect()
        };
        let (ours, theirs) = (of(ours), of(theirs));
        let ratio = |of: Of| {
            let pairs = ours.iter().zip(&theirs);
            let ratios: Vec<f64> = pairs.map(|(ours, theirs)| of(ours) / of(theirs)).collect();
            let runs = group.pairs.iter().map(|&pair| run_of[pair]);
            Estimate::bootstrap(&medians_by(runs, &ratios))
        };
        Self {
            state: group.state,
            ratio: ratio(|sample| sample.throughput.iops),
            client_cpu: ratio(|sample| sample.throughput.client.cpu_us),
            ours,
            theirs,
        }
    }

    /// Who is ahead here.
    fn verdict(&self) -> Verdict {
        if self.ratio.low > 1.0 {
            Verdict::Won
        } else if self.ratio.high < 1.0 {
            Verdict::Lost
        } else {
            Verdict::Even
        }
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

/// The median of those values that have the same key, key by key. Slices of one run are no measurements of their
/// own: whatever its two servers found at their start is in all of them.
fn medians_by(keys: impl Iterator<Item = usize>, values: &[f64]) -> Vec<f64> {
    let mut by_key: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (key, &value) in keys.zip(values) {
        by_key.entry(key).or_default().push(value);
    }
    by_key.values().map(|values| median(values)).collect()
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
    #[allow(clippy::float_cmp)] // medians of small whole numbers are exact
    fn each_run_counts_once() {
        let medians = medians_by([0, 0, 0, 2].into_iter(), &[1.0, 9.0, 2.0, 4.0]);
        assert_eq!(medians, [2.0, 4.0]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.0001, 0.0214, 0.5, 2.3456, 23.456, 234.56].map(short);
        assert_eq!(
            shown,
            ["0", "<.001", "0.021", "0.50", "2.35", "23.5", "235"]
        );
    }
}
