//! Those of our server.
//!
//! It never spins (`--poll never`); requests come in batches, each once the server sleeps again; and the
//! client asks for no calls.

use std::io;

use pollux_tests::client::Waiting;
use pollux_tests::process::Process;
use pollux_tests::server::Server;
use serde::Serialize;

use super::{TIMES, each, shown, total_of, under_callgrind};
use crate::cell::{BLOCK, Cell, Contest, Disk, Work};
use crate::client::Blkio;
use crate::contender::{Contender, Exports};
use crate::fill;
use crate::images::{Images, TMPFS};
use crate::results::table::Table;

/// Of one disk.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    disk: Disk,
    work: Work,
    /// For each request, as often as it was counted.
    counts: Vec<f64>,
}

/// Requests of a batch: taken in one turn.
pub const DEPTH: u16 = 64;
/// Batches of the shorter run.
const ROUNDS: u32 = 100;

/// Counts those of `quiet`, a Pollux that never spins, by disk.
pub fn rows(quiet: &Contender, images: &Images) -> io::Result<Vec<Row>> {
    let mut rows = vec![];
    for (disk, work) in [
        (Disk::Null, Work::RandRead),
        (Disk::Memory, Work::RandRead),
        (Disk::Tmpfs, Work::RandRead),
        (Disk::Tmpfs, Work::RandWrite),
    ] {
        if quiet.check(disk).is_err() {
            continue;
        }
        let count = |_| per_request(quiet, disk, work, images);
        let counts = (0..TIMES).map(count).collect::<io::Result<_>>()?;
        rows.push(Row { disk, work, counts });
    }
    Ok(rows)
}

/// One row for each disk.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["disk", "requests", "instructions for each"]);
    for Row { disk, work, counts } in rows {
        table.add([disk.to_string(), work.to_string(), shown(counts)]);
    }
    table
}

fn per_request(contender: &Contender, disk: Disk, work: Work, images: &Images) -> io::Result<f64> {
    images.prepare(disk, 0)?;
    let cell = Cell {
        disk,
        work,
        block: BLOCK,
        contest: Contest::Servers(Waiting::Polling),
        depth: DEPTH,
    };
    let run = |rounds| run(contender, cell, rounds, images);
    let (shorter, longer) = (run(ROUNDS)?, run(2 * ROUNDS)?);
    Ok(each(shorter, longer, ROUNDS * u32::from(DEPTH)))
}

/// All instructions of a server that answers `rounds` batches.
fn run(contender: &Contender, cell: Cell, rounds: u32, images: &Images) -> io::Result<u64> {
    let folder = tempfile::tempdir_in(TMPFS)?;
    let socket = folder.path().join("disk.sock");
    let counts = folder.path().join("callgrind.out");
    let command = contender.command(Exports::one(cell.disk), images, &socket, 0)?;
    let mut command = under_callgrind(&command, &counts, &[]);
    let server = Server::start(&mut command, &socket, contender.ready())?;
    if contender.starts_empty(cell.disk) {
        fill::fill(&socket, cell.disk)?;
    }
    let client = Blkio::connect(&socket, Waiting::Polling, cell.job())?;
    let mut load = cell.job().start(client, cell.disk);
    let process = Process::new(server.pid());
    for _ in 0..rounds {
        while !process.is_asleep()? {
            std::thread::yield_now();
        }
        load.run_round()?;
    }
    load.end()?;
    let (status, log) = server.terminate()?;
    total_of(&counts).ok_or_else(|| {
        io::Error::other(format!(
            "callgrind has counted nothing ({status}); is valgrind installed?\n{log}"
        ))
    })
}
