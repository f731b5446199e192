//! Two servers, or two clients, in turn, A B A B, cell by cell.

use std::io;
use std::time::Duration;

use pollux_tests::server::Ready;

use crate::cell::{Cell, Server as Which, Side};
use crate::contender::{Contender, Exports};
use crate::images::{Images, TMPFS};
use crate::interrupt::Interrupt;
use crate::load;
use crate::measure::{self, Plan, Sample};
use crate::options::Options;
use crate::quiet::{self, Disturbance};
use crate::results::Outcome;
use crate::studies;

/// What all cells share.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Ours and theirs.
    pub contenders: &'a [Contender; 2],
    /// The files behind the disks.
    pub images: &'a Images,
    /// Ends it early.
    pub interrupt: &'a Interrupt,
    /// How to measure.
    pub plan: Plan,
}

impl Comparison<'_> {
    /// The same with measurements that last that share of the time.
    pub fn shortened(mut self, share: f64) -> Self {
        self.plan.runtime = self.plan.runtime.mul_f64(share);
        self
    }

    /// Can both servers serve all that is asked for? Better to know before the first hour.
    pub fn check(&self) -> io::Result<()> {
        let sets = self.options.sets();
        let cells = sets.iter().flat_map(|all| &all.list);
        for cell in cells {
            for side in cell.contest.sides() {
                self.contender(side.server).check(cell.disk)?;
            }
        }
        studies::check(self)
    }

    /// That one of the two.
    pub const fn contender(&self, server: Which) -> &Contender {
        let [ours, peer] = self.contenders;
        match server {
            Which::Ours => ours,
            Which::Peer => peer,
        }
    }

    /// The pairs of one cell.
    pub fn run(&self, cell: Cell) -> io::Result<Outcome> {
        let pairs = self.options.pairs();
        let mut samples = [vec![], vec![]];
        let mut repeated = 0;
        for pair in 1..=pairs {
            for (side, samples) in cell.contest.sides().into_iter().zip(&mut samples) {
                let (sample, again) = self.undisturbed(&cell.to_string(), || {
                    let sample = self.sample(side, cell)?;
                    let disturbance = sample.throughput.disturbance;
                    Ok((sample, disturbance))
                })?;
                repeated += again;
                eprintln!(
                    "{cell} {pair}/{pairs}: {}, {}: {:.1} k IOPS",
                    self.contender(side.server).name,
                    side.client,
                    sample.throughput.iops / 1000.0
                );
                samples.push(sample);
            }
        }
        let [ours, theirs] = samples;
        Ok(Outcome::new(cell, ours, theirs, repeated))
    }

    /// What `measure` finds when nobody disturbs it, if the machine allows, and how often that was made
    /// again.
    pub fn undisturbed<T>(
        &self,
        name: &str,
        measure: impl Fn() -> io::Result<(T, Disturbance)>,
    ) -> io::Result<(T, usize)> {
        let mut again = 0;
        loop {
            quiet::wait_for_quiet(Duration::from_secs(5))?;
            let (found, disturbance) = measure()?;
            if again == self.options.repeats || !disturbance.disturbs() {
                return Ok((found, again));
            }
            again += 1;
            eprintln!(
                "{name}: others used {:.0} % of a processor, the host {:.0} %; once more",
                100.0 * disturbance.others,
                100.0 * disturbance.stolen
            );
        }
    }

    /// Starts the server, measures it once, and ends it.
    fn sample(&self, side: Side, cell: Cell) -> io::Result<Sample> {
        self.interrupt.check()?;
        let contender = self.contender(side.server);
        self.images.prepare(cell.disk)?;
        let folder = tempfile::tempdir_in(TMPFS)?;
        let cpu = self.options.server_cpu;
        let exports = Exports::one(cell.disk);
        let server = contender.start(exports, self.images, folder.path(), cpu)?;
        if contender.starts_empty(cell.disk) {
            load::fill(server.socket(), cell.disk)?;
        }
        let sample = measure::measure(
            &server,
            folder.path(),
            (side.client, cell),
            self.plan,
            self.interrupt,
        );
        // Ctrl-C reaches the server too: then its end is no news.
        self.interrupt.check()?;
        let told = |error: io::Error| {
            let (name, log) = (&contender.name, server.log());
            io::Error::other(format!("{name} on {cell}: {error}\n{log}"))
        };
        let mut sample = sample.map_err(told)?;
        if contender.ready() == Ready::JsonLine {
            let counters = server.counters().map_err(told)?;
            sample.counters = Some(serde_json::from_value(counters)?);
        }
        Ok(sample)
    }
}
