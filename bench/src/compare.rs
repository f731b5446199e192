//! Two servers, or two clients, in turn, A B A B, cell by cell.

use std::io;
use std::path::Path;
use std::time::Duration;

use pollux_tests::server::{Ready, Server};
use tempfile::TempDir;

use crate::cell::{Cell, Disk, Side};
use crate::contender::{Contender, Exports};
use crate::contenders::Contenders;
use crate::fill;
use crate::images::{Images, TMPFS};
use crate::interrupt::Interrupt;
use crate::measure::{self, Plan, Run};
use crate::options::Options;
use crate::quiet::{self, Disturbance, Usage};
use crate::results::Outcome;

/// What all cells share.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// The servers.
    pub contenders: &'a Contenders,
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

    /// Can both servers serve all cells that are asked for? Better to know before the first hour.
    pub fn check(&self) -> io::Result<()> {
        let sets = self.options.sets();
        let cells = sets.iter().flat_map(|all| &all.list);
        for cell in cells {
            Images::check(cell.disk)?;
            for side in cell.contest.sides() {
                self.of(side).check(cell.disk)?;
            }
        }
        Ok(())
    }

    fn of(&self, side: Side) -> &Contender {
        let known = self.contenders.get(side.server);
        known.expect("cells are about ours and the peer alone")
    }

    /// All runs of one cell.
    pub fn run(&self, cell: Cell) -> io::Result<Outcome> {
        let pairs = self.options.pairs();
        let mut runs = vec![];
        let (mut repeated, mut disturbed) = (0, 0);
        for pair in 1..=pairs {
            let name = format!("{cell} {pair}/{pairs}");
            // Where its file lies makes a disk faster or slower than another: each server has either file in turn.
            let files = if pair % 2 == 1 { [0, 1] } else { [1, 0] };
            let run = || self.one_run(cell, files);
            let taken = self.undisturbed(&name, run, measure::has_pairs)?;
            repeated += taken.again;
            disturbed += usize::from(taken.disturbed);
            for (side, samples) in cell.contest.sides().into_iter().zip(&taken.found) {
                let server = &self.of(side).name;
                eprintln!(
                    "{name}: {server}, {}: {}",
                    side.client,
                    measure::brief(samples)
                );
            }
            runs.push(taken.found);
        }
        Ok(Outcome::new(cell, runs, repeated, disturbed))
    }

    /// What `measure` finds when nobody disturbs it and it `serves` to be compared, if the machine allows.
    pub fn undisturbed<T>(
        &self,
        name: &str,
        measure: impl Fn() -> io::Result<T>,
        serves: impl Fn(&T) -> bool,
    ) -> io::Result<Taken<T>> {
        let mut again = 0;
        loop {
            self.interrupt.check()?;
            // Even without repeats it checks once: in that time the kernel lets go of the files of the last server.
            let patience = Duration::from_secs(if self.options.repeats == 0 { 0 } else { 5 });
            quiet::wait_for_quiet(patience)?;
            let usage = Usage::now(&self.images.daemons()?)?;
            let found = measure()?;
            let disturbance = usage.others_until(&Usage::now(&self.images.daemons()?)?);
            let disturbed = disturbance.disturbs();
            if again == self.options.repeats || (!disturbed && serves(&found)) {
                return Ok(Taken {
                    found,
                    again,
                    disturbed,
                });
            }
            again += 1;
            let Disturbance { others, stolen } = disturbance;
            let (others, stolen) = (100.0 * others, 100.0 * stolen);
            let why = if disturbed {
                format!("others used {others:.0} % of a processor, the host {stolen:.0} %")
            } else {
                "the host moved the processors".to_owned()
            };
            eprintln!("{name}: {why}; once more");
        }
    }

    /// Starts both servers on those copies of the disk's file, measures them in turn, and ends them.
    fn one_run(&self, cell: Cell, files: [usize; 2]) -> io::Result<Run> {
        let folder = tempfile::tempdir_in(TMPFS)?;
        let [one, other] = cell.contest.sides();
        let servers = [
            self.start(one, cell.disk, files[0])?,
            self.start(other, cell.disk, files[1])?,
        ];
        let running = servers.each_ref().map(|(server, _)| server);
        let found = measure::run(running, folder.path(), cell, self.plan, self.interrupt);
        // Ctrl-C reaches the servers too: then their end is no news.
        self.interrupt.check()?;
        let told = |error: io::Error| {
            let [one, other] = running.map(Server::log);
            io::Error::other(format!("{cell}: {error}\n{one}\n{other}"))
        };
        let mut found = found.map_err(told)?;
        for ((side, server), samples) in [one, other].into_iter().zip(running).zip(&mut found) {
            if self.of(side).ready() == Ready::JsonLine {
                let counters = serde_json::from_value(server.counters().map_err(told)?)?;
                for sample in samples {
                    sample.found.counters = Some(counters);
                }
            }
        }
        Ok(found)
    }

    /// A server of one side with that copy of the disk's file, its socket in a folder of its own.
    fn start(&self, side: Side, disk: Disk, copy: usize) -> io::Result<(Server, TempDir)> {
        let folder = tempfile::tempdir_in(TMPFS)?;
        let exports = Exports {
            copy,
            ..Exports::one(disk)
        };
        let cpu = self.plan.processors.other;
        let server = self.serve(self.of(side), exports, folder.path(), cpu)?;
        Ok((server, folder))
    }

    /// Starts `contender` on `cpu`, with its sockets in `folder`, and fills its disks where they are empty.
    pub fn serve(
        &self,
        contender: &Contender,
        exports: Exports,
        folder: &Path,
        cpu: usize,
    ) -> io::Result<Server> {
        let disk = exports.disk;
        self.images.prepare(disk, exports.copy)?;
        let server = contender.start(exports, self.images, folder, cpu)?;
        if contender.starts_empty(disk) {
            for socket in exports.sockets(server.socket()) {
                fill::fill(&socket, disk)?;
            }
        }
        Ok(server)
    }
}

/// What was measured in the end.
pub struct Taken<T> {
    /// It.
    pub found: T,
    /// How often it was made again.
    pub again: usize,
    /// Was it disturbed every time?
    pub disturbed: bool,
}
