//! What is printed of a run.

use std::time::Duration;

use pollux_load::Histogram;

use super::options::{BenchArgs, name};
use super::plan::{Mix, Plan};
use super::run::Outcome;
use pollux_load::Direction;

/// A run and what came of it.
pub struct Report<'a> {
    pub args: &'a BenchArgs,
    pub plan: &'a Plan,
    pub outcome: &'a Outcome,
}

/// One direction.
pub struct Side {
    pub requests: u64,
    pub bytes: u64,
    pub latency: Histogram,
    /// How late those were started that were due at a time.
    pub late: Histogram,
}

impl Report<'_> {
    /// What happened in one direction.
    pub fn side(&self, direction: Direction) -> Side {
        let split = match direction {
            Direction::Read => &self.outcome.latencies.read,
            Direction::Write => &self.outcome.latencies.write,
        };
        Side {
            requests: split.count(),
            bytes: split.count() * self.plan.bytes as u64,
            latency: split.all(),
            late: split.late.clone(),
        }
    }

    /// All requests that were measured.
    pub fn requests(&self) -> u64 {
        let latencies = &self.outcome.latencies;
        latencies.read.count() + latencies.write.count()
    }

    /// For how long.
    pub fn elapsed(&self) -> Duration {
        self.outcome.elapsed
    }

    /// Did all that was to be verified turn out right? A run that writes and ends early has not read all of it back.
    pub fn is_verified(&self) -> bool {
        let outcome = self.outcome;
        let is_cut_off = outcome.stopped && self.plan.rw.writes();
        outcome.checked > 0 && outcome.error.is_none() && !is_cut_off
    }

    /// What was done, in one line.
    pub fn title(&self) -> String {
        let Self { args, plan, .. } = self;
        let mut parts = vec![format!("{} of {} at a time", name(args.rw), args.bs)];
        if args.rw.mixes() {
            parts.push(format!("{}% reads", plan.reads));
        }
        let (each, jobs) = match (plan.jobs, args.share_queue) {
            (1, _) => ("", String::new()),
            (jobs, true) => (" each", format!(" in each of {jobs} jobs on one queue")),
            (jobs, false) => (
                " each",
                format!(" in each of {jobs} jobs with a queue each"),
            ),
        };
        parts.push(format!("{} in flight{jobs}", plan.depth));
        if let Some(rate) = plan.rate {
            parts.push(format!("{rate} a second{each}"));
        }
        parts.push(match plan.mix {
            Mix::All(waiting) => format!("completion {}", name(waiting)),
            Mix::Hipri(percent) => format!("{percent}% polled"),
        });
        if self.is_verified() {
            parts.push("verified".to_owned());
        }
        parts.join(", ")
    }
}

/// The percentiles that fio prints by default.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

#[cfg(test)]
pub mod tests {
    use pollux::disk::Geometry;
    use pollux::driver::CompletionMode;
    use pollux_load::JobError;

    use super::*;
    use crate::bench::options::tests::parse;

    /// A thousand reads in two seconds.
    pub fn of_a_run() -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..1000 {
            outcome
                .latencies
                .ended(Direction::Read, CompletionMode::Polled, 20_000);
        }
        outcome.elapsed = Duration::from_secs(2);
        outcome.client.total = Duration::from_millis(2);
        outcome.counters.kicks = 500;
        outcome.counters.calls = 1;
        outcome.counters.polls = 3000;
        outcome.counters.empty_polls = 2000;
        outcome.counters.sleeps = 1;
        outcome
    }

    /// Reads and writes of both kinds.
    pub fn of_a_mixed_run() -> Outcome {
        let mut outcome = of_a_run();
        outcome
            .latencies
            .ended(Direction::Read, CompletionMode::Call, 90_000);
        outcome
            .latencies
            .ended(Direction::Write, CompletionMode::Call, 80_000);
        outcome
    }

    /// What can come of a run with `--verify`, whether it writes, and whether all was verified then.
    pub fn of_verified_runs() -> Vec<(Outcome, &'static str, bool)> {
        let outcome = |checked, stopped, error: Option<&str>| Outcome {
            checked,
            stopped,
            error: error.map(|error| JobError::Pin(error.to_owned())),
            ..of_a_run()
        };
        let (reads, writes) = (
            "--verify crc32c --rw randread",
            "--verify crc32c --rw randwrite",
        );
        vec![
            (outcome(7, false, None), reads, true),
            (outcome(7, false, None), writes, true),
            // What was read until then was compared. Before the first read there was nothing.
            (outcome(7, true, None), reads, true),
            (outcome(0, true, None), reads, false),
            (outcome(7, true, None), writes, false),
            // A failure ends the other jobs as well.
            (outcome(7, true, Some("found zeroes")), reads, false),
            (outcome(7, true, Some("found zeroes")), writes, false),
        ]
    }

    /// What `print` makes of `outcome`, of a mixed run if it has requests of both kinds.
    pub fn given<T>(outcome: &Outcome, print: impl Fn(&Report<'_>) -> T) -> T {
        let load = match outcome.latencies.write.count() {
            0 => "--rw randread",
            _ => "--rw randrw --hipri-percent 50",
        };
        given_load(load, outcome, print)
    }

    /// The same, of a run with these options.
    pub fn given_load<T>(load: &str, outcome: &Outcome, print: impl Fn(&Report<'_>) -> T) -> T {
        let args = parse(&format!("--disk null:size=1M --iodepth 16 {load}")).unwrap();
        let plan = Plan::new(&args, &Geometry::plain(1 << 20)).unwrap();
        print(&Report {
            args: &args,
            plan: &plan,
            outcome,
        })
    }
}
