//! Those of a client: this program started again under callgrind, as a client of a server outside of it.
//!
//! The server is stopped (`SIGSTOP`) whenever instructions are counted, and runs until it sleeps whenever
//! they are not. A counted turn sends one batch and finds the one before it, all of it at the first look:
//! what a client does in its steady state, and as many instructions each time.
//!
//! ```text
//! client  sends A │            │ sends B, finds all of A │            │ sends A, finds all of B │ …
//! server  stopped │ answers A, │ stopped                 │ answers B, │ stopped                 │ …
//!                 │ sleeps     │                         │ sleeps     │                         │
//! ```

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use clap::{Args, ValueEnum};
use pollux_driver as driver;
use pollux_load::Closed;
use pollux_tests::client as libblkio;
use pollux_tests::process::Process;
use pollux_tests::server::Server;
use rustix::process::Signal;
use serde::Serialize;

use super::{TIMES, each, shown, total_of, under_callgrind};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::{Blkio, Job};
use crate::contender::{Contender, Exports};
use crate::images::{Images, TMPFS};
use crate::results::table::Table;
use crate::statistics::median;

/// Of one depth.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    depth: u16,
    /// For each request, as often as it was counted.
    driver: Vec<f64>,
    blkio: Vec<f64>,
}

/// Which client.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Library {
    /// Crate `blkio`.
    Blkio,
    /// Our driver.
    Driver,
}

/// What the client under callgrind is told.
#[derive(Clone, Debug, Args)]
pub struct Counted {
    library: Library,
    socket: PathBuf,
    depth: u16,
    rounds: u32,
}

/// What callgrind is to count: [`counted`], and what it calls.
const PATTERN: &str = "--toggle-collect=*instructions::client::counted*";
/// Turns of the shorter run.
const ROUNDS: u32 = 100;

/// Counts those of both clients on `quiet`, a Pollux that never spins.
pub fn rows(quiet: &Contender, images: &Images) -> io::Result<Vec<Row>> {
    let row = |depth| {
        let counts = |library| {
            let count = |_| per_request(quiet, images, library, depth);
            (0..TIMES).map(count).collect::<io::Result<_>>()
        };
        Ok(Row {
            depth,
            driver: counts(Library::Driver)?,
            blkio: counts(Library::Blkio)?,
        })
    };
    [1, 64].into_iter().map(row).collect()
}

/// One row for each depth.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["batch", "driver", "blkio", "ratio"]);
    for Row {
        depth,
        driver,
        blkio,
    } in rows
    {
        table.add([
            depth.to_string(),
            shown(driver),
            shown(blkio),
            format!("{:.2}", median(driver) / median(blkio)),
        ]);
    }
    table
}

fn per_request(
    server: &Contender,
    images: &Images,
    library: Library,
    depth: u16,
) -> io::Result<f64> {
    let run = |rounds| run(server, images, library, depth, rounds);
    let (shorter, longer) = (run(ROUNDS)?, run(2 * ROUNDS)?);
    Ok(each(shorter, longer, ROUNDS * u32::from(depth)))
}

/// The instructions of `rounds` turns.
fn run(
    contender: &Contender,
    images: &Images,
    library: Library,
    depth: u16,
    rounds: u32,
) -> io::Result<u64> {
    let folder = tempfile::tempdir_in(TMPFS)?;
    let socket = folder.path().join("disk.sock");
    let counts = folder.path().join("callgrind.out");
    let mut command = contender.command(Exports::one(Disk::Null), images, &socket, 0)?;
    let server = Server::start(&mut command, &socket, contender.ready())?;
    let counted = Counted {
        library,
        socket,
        depth,
        rounds,
    };
    let mut client = Client::start(&counted.command()?, &counts)?;
    // Once before the first batch, once before each turn, and once before it ends.
    client.arrived()?;
    for _ in 0..=rounds {
        stop(&server)?;
        client.go_on()?;
        client.arrived()?;
        finish(&server)?;
    }
    client.go_on()?;
    let status = client.child.wait()?;
    total_of(&counts)
        .filter(|total| *total > 0 && status.success())
        .ok_or_else(|| io::Error::other(format!("callgrind has counted nothing ({status})")))
}

/// Stops the server where it sleeps.
fn stop(server: &Server) -> io::Result<()> {
    server.signal(Signal::STOP)?;
    while !Process::new(server.pid()).is_stopped()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// Has the server answer all that there is.
fn finish(server: &Server) -> io::Result<()> {
    server.signal(Signal::CONT)?;
    while !Process::new(server.pid()).is_asleep()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// The client under callgrind, which asks by a byte on its output before each step, and is answered by
/// one on its input.
struct Client {
    child: Child,
    answers: ChildStdin,
    questions: ChildStdout,
}

impl Client {
    fn start(command: &Command, counts: &Path) -> io::Result<Self> {
        let mut command = under_callgrind(command, counts, &["--quiet", PATTERN]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        Ok(Self {
            answers: child.stdin.take().expect("its input is piped"),
            questions: child.stdout.take().expect("its output is piped"),
            child,
        })
    }

    fn arrived(&mut self) -> io::Result<()> {
        self.questions.read_exact(&mut [0]).map_err(|error| {
            io::Error::new(error.kind(), "the client under callgrind has ended early")
        })
    }

    fn go_on(&mut self) -> io::Result<()> {
        self.answers.write_all(b"\n")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Counted {
    /// The command that runs it.
    fn command(&self) -> io::Result<Command> {
        let library = self.library.to_possible_value();
        let library = library.expect("no value is skipped");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["counted-client", library.get_name()])
            .arg(&self.socket)
            .args([self.depth.to_string(), self.rounds.to_string()]);
        Ok(command)
    }

    /// Is that client.
    pub fn run(&self) -> io::Result<()> {
        // Two batches take turns.
        let job = Job {
            work: Work::RandRead,
            block: BLOCK,
            depth: 2 * self.depth,
        };
        match self.library {
            Library::Blkio => {
                let waiting = libblkio::Waiting::Polling;
                self.turns(Blkio::connect(&self.socket, waiting, job)?, job)
            }
            Library::Driver => {
                let waiter = driver::Waiter::new(driver::Waiting::Polled)?;
                self.turns(job.connect(&self.socket, waiter)?, job)
            }
        }
    }

    fn turns<R: pollux_load::Client>(&self, client: R, job: Job) -> io::Result<()> {
        let mut load = job.closed(client, Disk::Null);
        let (mut batch, mut other): (Vec<_>, Vec<_>) = {
            let depth = usize::from(self.depth);
            ((0..depth).collect(), (depth..2 * depth).collect())
        };
        ask()?;
        load.send(&batch)?;
        let mut found = vec![];
        for _ in 0..self.rounds {
            ask()?;
            std::mem::swap(&mut batch, &mut other);
            counted(&mut load, &mut batch)?;
            found.push(batch.len());
        }
        // From here on the server runs, so that the connection can be ended.
        ask()?;
        load.end_with(other.len())?;
        match found.iter().find(|found| **found != other.len()) {
            None => Ok(()),
            Some(wrong) => Err(io::Error::other(format!(
                "a poll found {wrong} requests, and a batch has {}",
                self.depth
            ))),
        }
    }
}

/// What is counted. Never inlined: callgrind knows it by its name.
#[inline(never)]
fn counted<R: pollux_load::Client>(load: &mut Closed<R>, batch: &mut Vec<usize>) -> io::Result<()> {
    load.exchange(batch)
}

/// Says that it has arrived, and waits to be told to go on.
fn ask() -> io::Result<()> {
    let mut output = io::stdout();
    output.write_all(b"\n")?;
    output.flush()?;
    io::stdin().read_exact(&mut [0])
}
