//! What is printed, and what is written to files.

mod beside;
pub mod findings;
mod opening;
mod outcome;
pub mod plot;
pub mod table;

use std::fmt::Write;

use serde::Serialize;

use crate::instructions::Instructions;
use crate::machine::Setting;
use crate::prices::Prices;
use crate::set::Cells;

pub use outcome::Outcome;
use plot::Plot;
use table::Table;

/// Everything, for scripts.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Where it was measured.
    pub setting: Setting,
    /// Pairs of each cell.
    pub pairs: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Why there are no system calls, if so.
    pub no_syscalls: Option<String>,
    /// What the machine charges.
    pub prices: Option<Prices>,
    /// Of our server, by disk.
    pub instructions: Option<Instructions>,
    /// What each cell gave.
    pub sections: Vec<Section>,
    /// What each study found.
    pub studies: Vec<findings::Section>,
}

/// A set of cells.
#[derive(Debug, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What the two sides are called.
    pub sides: [&'static str; 2],
    /// What each cell gave.
    pub outcomes: Vec<Outcome>,
}

impl Section {
    /// A set with nothing measured yet.
    pub const fn new(cells: &Cells) -> Self {
        Self {
            title: cells.title,
            sides: cells.sides,
            outcomes: vec![],
        }
    }

    /// Both tables.
    fn tables(&self) -> [Table; 2] {
        let mut speeds = Outcome::speeds(self.sides);
        let mut costs = Outcome::costs();
        for outcome in &self.outcomes {
            outcome.add_speeds(&mut speeds);
            outcome.add_costs(&mut costs);
        }
        [speeds.without_empty_columns(), costs]
    }

    /// For the terminal.
    pub fn plain(&self) -> String {
        let [speeds, costs] = self.tables();
        let [one, other] = self.sides;
        format!(
            "{}, {one} / {other}\n{}\nfor each request, {one} / {other}\n{}",
            self.title,
            speeds.plain(),
            costs.plain()
        )
    }

    fn markdown(&self) -> String {
        let [speeds, costs] = self.tables();
        let [one, other] = self.sides;
        let lost = |outcome: &&Outcome| !outcome.is_won();
        format!(
            "## {}\n\n{}\nCells that {one} does not win: {} of {}. For each request, {one} / {other}:\n\n{}",
            self.title,
            speeds.markdown(),
            self.outcomes.iter().filter(lost).count(),
            self.outcomes.len(),
            costs.markdown()
        )
    }
}

impl Results {
    /// The file `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Results\n\n{}{}", opening::text(self), self.head());
        if let Some(why) = &self.no_syscalls {
            writeln!(text, "\nSystem calls were not counted: {why}.")
                .expect("a string takes everything");
        }
        let prices = self.prices.as_ref().map(Prices::markdown);
        let instructions = self.instructions.as_ref().map(Instructions::markdown);
        let sections = self.sections.iter().map(Section::markdown);
        let studies = self.studies.iter().map(findings::Section::markdown);
        let sections = sections.chain(studies);
        for section in prices.into_iter().chain(sections).chain(instructions) {
            text.push('\n');
            text.push_str(&section);
        }
        text.push_str(HOW_TO_READ);
        text
    }

    /// The pictures that stand beside it.
    pub fn plots(&self) -> Vec<Plot> {
        let studies = self.studies.iter().filter_map(|study| study.plot.clone());
        self.beside().into_iter().chain(studies).collect()
    }

    /// That of two servers beside each other.
    fn beside(&self) -> Option<Plot> {
        let outcomes: Vec<&Outcome> = self
            .sections
            .iter()
            .flat_map(|section| &section.outcomes)
            .collect();
        match &self.setting.servers[..] {
            [(ours, _), (peer, _), ..] => beside::picture(&outcomes, [ours, peer]),
            _ => None,
        }
    }

    fn head(&self) -> String {
        let Self {
            setting,
            pairs,
            seconds,
            ..
        } = self;
        let roles = ["ours", "peer"]
            .into_iter()
            .chain(std::iter::repeat("beside it"));
        let server = |(role, (name, version)): (&str, &(String, String))| {
            format!("- {role}: `{name}` ({version})\n")
        };
        let servers: String = roles.zip(&setting.servers).map(server).collect();
        format!(
            "Written by `pollux-bench`; do not edit. 4 KiB requests at random offsets on one queue by an independent\n\
             client (crate `blkio`), server and client on a processor each; for each cell {pairs} runs of {seconds} s\n\
             a server, each with both started afresh, their files exchanged, and in slices of a tenth of a second, A B A B.\n\n\
             - machine: {}, {}\n- kernel: {}\n- files: tmpfs; `cached` and `direct` on {}\n- commit: {}\n\
             {servers}- command: `{}`\n",
            setting.processor,
            setting.virtualization,
            setting.kernel,
            setting.storage,
            setting.commit,
            setting.command,
        )
    }
}

const HOW_TO_READ: &str = "
## How to read this

A cell is disk/client/requests/depth, with the server before it where two clients are compared on one. IOPS are
medians with the least and the greatest. The ratio is the median over the runs, of each the median of its pairs, with
its 95 % bootstrap interval. `LOST` marks a row whose whole interval is below 1, `even` one whose interval holds 1.

The host has states of its own, and only what was measured in the same one is a pair (*host*). It moves the two
processors: a cache line goes from one to the other and back in some 95 ns (*near*) or some 560 (*far*), for seconds
or minutes. That is measured around each sample; one during which it changed is dropped, and so is a pair with one
side near and the other far. Where the speeds of one server lie in two heaps, as they do where the host sometimes
polls before it halts a processor, there is a row for either (*fast*, *slow*), and a mean over none. `dropped` are
pairs that were in no one state; `redone` measurements were disturbed by other load, or had no pair, and were made
again; `noisy` ones were disturbed each time, and count.

p50 and p99 are what the client sees, from a phase of its own after the one that counts IOPS: each request is timed
from the poll that found its buffer free to the poll that found it back, by one reading of the clock for a batch.
Processor time is that of all threads of the server, and of the client's one thread. A sleep is a voluntary context
switch. System calls are counted from outside (`perf stat`), in a third phase. A kick is the client's write to an
eventfd that it shares with the server, a call the server's. `-` is what could not be counted.

The disks: *null* touches no data (the storage daemon's `null-co` with `read-zeroes=off`). *memory* is ours alone:
beside it stands a file on tmpfs through the page cache; both are written once before. *tmpfs* is a file there,
*cached* one of a disk that lies in the page cache, *direct* one past it (`cache=none`). The storage daemon does I/O
on files by `aio=io_uring`, which is as fast as its threads or faster, and level with `native` past the page cache.
`qsd-iothread` serves from an iothread, which polls before it sleeps, and is as fast as its main loop (`qsd`) or
faster.

*rbd* is an image of 256 MiB, all of it written, in a Ceph cluster of one node: a monitor, and an OSD that keeps
everything in memory. The run starts it. Each server has an image of its own and reaches it by the same librbd without
its cache (the storage daemon with `cache.direct=on`). librbd's threads run on the server's processor and count as the
server's. The cluster's daemons are bound to no processor: of two, they take what server and client leave. The client
sleeps there, as one that polls would keep a processor from them.

A *polling* client spins on the used index and asks for no calls. A *blocking* one asks for a call and sleeps whenever
its poll is empty. Depth 1 with a blocking client measures wake-ups, and little else.

Two clients on one server: *driver* is crate `pollux-driver` with a queue of its own, which waits `polled` where
`blkio` polls, and by `call` where it blocks. In the rows named `adaptive`, whose `blkio` blocks as well, it polls for
as long as that has paid lately, then sleeps: that buys speed with processor time. Both run the same loop. The
client's processor time is also told as a ratio within a pair.
";
