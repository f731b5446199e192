//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::contender::{Contender, SYNTAX};
use crate::contenders::Contenders;
use crate::instructions::client::Counted;
use crate::measure::{Plan, Syscalls};
use crate::round_trip::Processors;
use crate::set::{Cells, Set};

/// Measure Pollux against a peer, or against itself with a mechanism off, and our driver against another
/// client: 4 KiB requests at random offsets, one queue, a processor each
#[derive(Debug, Parser)]
#[command(name = "pollux-bench", after_help = SYNTAX)]
pub struct Options {
    /// Three short pairs of each cell: to see that it works, not to quote
    #[arg(long)]
    pub quick: bool,
    /// Pairs of measurements of each cell, in two servers that are started for each [default: 7, quick: 3]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Seconds of each measurement of two servers; three quarters more go into latencies, system calls
    /// and the warm-up [default: 1, quick: 0.4]
    #[arg(long)]
    pub runtime: Option<f64>,
    /// Only these cells, as a list with commas [default: all sets]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub set: Vec<Set>,
    /// Only rows whose name contains this, e.g. `null/polling`, `randwrite`, `/16/` or `rate/100/`
    #[arg(long, default_value = "")]
    pub only: String,
    /// The processor of the servers
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// The processor of the client
    #[arg(long, default_value_t = 1)]
    pub client_cpu: usize,
    /// Our server
    #[arg(long, default_value = "pollux")]
    pub ours: Contender,
    /// What it is compared with
    #[arg(long, default_value = "qsd-iothread")]
    pub peer: Contender,
    /// Where the files of the disks `cached` and `direct` lie: not on tmpfs [default: target/bench]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// How often a measurement is made again that others disturbed, or in which the host moved the processors; with 0,
    /// a quiet machine is not even waited for
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
    /// Only measure the machine's own prices
    #[arg(long, conflicts_with = "instructions")]
    pub prices: bool,
    /// Only count the instructions of our server, and of clients on it, for each request, by callgrind
    #[arg(long)]
    pub instructions: bool,
    /// Write everything to this file, for scripts
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Write the tables to this file [default: bench/RESULTS.md, after a run that is neither quick nor
    /// partial]
    #[arg(long)]
    pub results: Option<PathBuf>,
    /// What this program does for itself.
    #[command(subcommand)]
    pub part: Option<Part>,
}

/// What this program starts itself again for.
#[derive(Clone, Debug, Subcommand)]
pub enum Part {
    /// A client whose instructions are counted.
    #[command(hide = true)]
    CountedClient(Counted),
    /// A stacked disk whose instructions are counted.
    #[command(hide = true)]
    CountedLayer(crate::instructions::layer::Counted),
}

impl Options {
    /// Pairs of each cell.
    pub fn pairs(&self) -> usize {
        self.pairs.unwrap_or(if self.quick { 3 } else { 7 }).max(1)
    }

    /// Seconds of each measurement.
    pub fn seconds(&self) -> f64 {
        self.runtime.unwrap_or(if self.quick { 0.4 } else { 1.0 })
    }

    /// Was this set asked for?
    pub fn wants(&self, set: Set) -> bool {
        self.set.is_empty() || self.set.contains(&set)
    }

    /// Was the row of this name asked for?
    pub fn wants_row(&self, name: &str) -> bool {
        // It ends with a slash here, so that `/1/` is not `/16/`.
        format!("{name}/").contains(&self.only)
    }

    /// The cells that were asked for, by set.
    pub fn sets(&self) -> Vec<Cells> {
        let wanted = Set::OF_CELLS.into_iter().filter(|set| self.wants(*set));
        let chosen = wanted.filter_map(Set::cells).map(|mut all| {
            all.list.retain(|cell| self.wants_row(&cell.to_string()));
            all
        });
        chosen.filter(|all| !all.list.is_empty()).collect()
    }

    /// The servers.
    pub fn contenders(&self) -> Contenders {
        Contenders::new(self.ours.clone(), self.peer.clone())
    }

    /// Where clients and servers run.
    pub const fn processors(&self) -> Processors {
        Processors {
            own: self.client_cpu,
            other: self.server_cpu,
        }
    }

    /// Is everything measured, and as long as is fit to quote?
    pub fn is_whole(&self) -> bool {
        let complete = self.only.is_empty() && self.set.is_empty();
        complete && !self.quick && !self.prices && !self.instructions
    }

    /// Where the tables go.
    pub fn results(&self) -> Option<PathBuf> {
        let standard = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");
        let standard = || self.is_whole().then(|| standard.into());
        self.results.clone().or_else(standard)
    }

    /// Where the files of the disk lie.
    pub fn folder(&self) -> PathBuf {
        let standard = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench");
        self.folder.clone().unwrap_or_else(|| standard.into())
    }

    /// How to measure two servers.
    pub fn plan(&self, syscalls: Syscalls) -> Plan {
        Plan {
            runtime: Duration::from_secs_f64(self.seconds()),
            processors: self.processors(),
            syscalls,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn only_a_whole_run_replaces_the_results() {
        let results = |line: &str| {
            let words = format!("pollux-bench {line}");
            Options::parse_from(words.split_whitespace()).results()
        };
        assert!(results("").is_some_and(|path| path.ends_with("bench/RESULTS.md")));
        for partial in ["--quick", "--set ring", "--only null", "--prices"] {
            assert_eq!(results(partial), None, "{partial}");
        }
        assert_eq!(results("--quick --results a.md"), Some("a.md".into()));
    }
}
