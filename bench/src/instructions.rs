//! Instructions of our server for each request, counted by callgrind: what does not depend on the
//! machine's mood, and so can be compared between two commits.
//!
//! A server is run twice, with N and with 2N requests; the difference is N requests without start and
//! end. What depends on time is kept out: the server never spins (`--poll never`), since looking in vain
//! costs as many instructions as it takes time; requests come in batches, each once the server sleeps
//! again; and the client asks for no calls.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use pollux_tests::client::Waiting;
use pollux_tests::process::Process;
use pollux_tests::server::Server;
use serde::Serialize;

use crate::cell::{BLOCK, Cell, Contest, Disk, Work};
use crate::client::{Blkio, Job};
use crate::contender::{Contender, Program};
use crate::images::{Images, TMPFS};
use crate::load::{self, Load};
use crate::results::table::Table;
use crate::statistics::{median, range};

/// Of each disk.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Instructions(Vec<Row>);

#[derive(Clone, Debug, Serialize)]
struct Row {
    disk: Disk,
    work: Work,
    /// For each request, as often as it was counted.
    counts: Vec<f64>,
}

/// Requests of a batch: taken in one turn.
const DEPTH: u16 = 64;
/// Batches of the shorter run.
const ROUNDS: u32 = 100;
/// How often each number is counted: whether it comes out the same is part of the answer.
const TIMES: usize = 3;

impl Instructions {
    /// Counts those of `contender`. `None` when it is not Pollux: there is no common way to keep others
    /// from spinning.
    pub fn count(contender: &Contender, images: &Images) -> io::Result<Option<Self>> {
        let Program::Pollux { disk, options } = &contender.program else {
            return Ok(None);
        };
        let mut options = options.clone();
        options.extend(["--poll".to_owned(), "never".to_owned()]);
        let program = Program::Pollux {
            disk: disk.clone(),
            options,
        };
        let name = contender.name.clone();
        let quiet = Contender { name, program };
        let mut rows = vec![];
        for (disk, work) in [
            (Disk::Null, Work::RandRead),
            (Disk::Memory, Work::RandRead),
            (Disk::Tmpfs, Work::RandRead),
            (Disk::Tmpfs, Work::RandWrite),
        ] {
            if quiet.refuses(disk).is_some() {
                continue;
            }
            let count = |_| per_request(&quiet, disk, work, images);
            let counts = (0..TIMES).map(count).collect::<io::Result<_>>()?;
            rows.push(Row { disk, work, counts });
        }
        Ok(Some(Self(rows)))
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&["disk", "requests", "instructions for each"]);
        for Row { disk, work, counts } in &self.0 {
            let (least, greatest) = range(counts);
            table.add([
                disk.to_string(),
                work.to_string(),
                format!("{:.0} [{least:.0}–{greatest:.0}]", median(counts)),
            ]);
        }
        table
    }

    /// The section of `RESULTS.md`.
    pub fn markdown(&self) -> String {
        format!(
            "## Instructions of our server\n\n\
             By callgrind, which counts user space alone: medians of {TIMES} with the least and the greatest, in batches of\n\
             {DEPTH} that each find the server asleep. Where the worker hands requests to io_uring, they come back when the kernel\n\
             pleases, and the number is not repeatable.\n\n{}",
            self.table().markdown()
        )
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().plain())
    }
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn per_request(contender: &Contender, disk: Disk, work: Work, images: &Images) -> io::Result<f64> {
    images.prepare(disk)?;
    let cell = Cell {
        disk,
        work,
        block: BLOCK,
        contest: Contest::Servers(Waiting::Polling),
        depth: DEPTH,
    };
    let run = |rounds| run(contender, cell, rounds, images);
    let (shorter, longer) = (run(ROUNDS)?, run(2 * ROUNDS)?);
    let requests = f64::from(ROUNDS) * f64::from(DEPTH);
    Ok((longer as f64 - shorter as f64) / requests)
}

/// All instructions of a server that answers `rounds` batches.
fn run(contender: &Contender, cell: Cell, rounds: u32, images: &Images) -> io::Result<u64> {
    let folder = tempfile::tempdir_in(TMPFS)?;
    let socket = folder.path().join("disk.sock");
    let counts = folder.path().join("callgrind.out");
    let mut command = under_callgrind(&contender.command(cell.disk, images, &socket), &counts);
    let server = Server::start(&mut command, &socket, contender.ready())?;
    if contender.starts_empty(cell.disk) {
        load::fill(&socket, cell.disk)?;
    }
    let job = Job {
        work: cell.work,
        block: cell.block,
        depth: cell.depth,
    };
    let mut load = Load::start(Blkio::connect(&socket, Waiting::Polling, job)?, cell);
    let process = Process::new(server.pid());
    for _ in 0..rounds {
        while !process.is_asleep()? {
            std::thread::yield_now();
        }
        load.run_round()?;
    }
    load.end()?;
    let (status, log) = server.terminate()?;
    let text = fs::read_to_string(&counts).unwrap_or_default();
    total(&text).ok_or_else(|| {
        io::Error::other(format!(
            "callgrind has counted nothing ({status}); is valgrind installed?\n{log}"
        ))
    })
}

fn under_callgrind(command: &Command, counts: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(command.get_program())
        .args(command.get_args());
    valgrind
}

/// The sum at the end of callgrind's output.
fn total(counts: &str) -> Option<u64> {
    let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
    total?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_at_the_end() {
        let counts = "events: Ir\nfn=(1) main\n5 3\n\ntotals: 1234567\n";
        assert_eq!(total(counts), Some(1_234_567));
        assert_eq!(total("events: Ir\n"), None);
    }
}
