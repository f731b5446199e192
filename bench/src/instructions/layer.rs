//! What a stacked disk adds to a request: this program started again under callgrind, with a null disk that ends
//! requests at once, so that all that is counted is the layer. Its time is told, too.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use pollux_disk::wait::Sleeper;
use pollux_disk::{Disk, Geometry, Null, Op, PollScope, Queued, Request, Ticket, linear, striped};
use pollux_memory::{Loan, Region, Span};
use rustix::fs::MemfdFlags;
use serde::Serialize;

use super::{TIMES, each, shown, total_of, under_callgrind};
use crate::images::TMPFS;
use crate::results::table::Table;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The null disk itself.
    Bare,
    /// A linear disk over one of it.
    Linear,
    /// A striped disk over three, whose requests are split in three.
    Striped,
}

/// Of one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    shape: Shape,
    instructions: Vec<f64>,
    ns: Vec<f64>,
}

/// What the program under callgrind is told.
#[derive(Clone, Debug, Args)]
pub struct Counted {
    shape: Shape,
    requests: u32,
}

const REQUESTS: u32 = 20_000;
const TIMED: u32 = 2_000_000;
const CHUNK: usize = 4096;
const PATTERN: &str = "--toggle-collect=*instructions::layer::counted*";

/// One row for each shape.
pub fn rows() -> io::Result<Vec<Row>> {
    let row = |shape: &Shape| {
        let (mut instructions, mut ns) = (vec![], vec![]);
        for _ in 0..TIMES {
            let (shorter, longer) = (run(*shape, REQUESTS)?, run(*shape, 2 * REQUESTS)?);
            instructions.push(each(shorter, longer, REQUESTS));
            ns.push(timed(*shape)?);
        }
        Ok(Row {
            shape: *shape,
            instructions,
            ns,
        })
    };
    Shape::value_variants().iter().map(row).collect()
}

/// One row for each shape.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "disk",
        "instructions for each request",
        "ns for each request",
    ]);
    for Row {
        shape,
        instructions,
        ns,
    } in rows
    {
        let name = shape.to_possible_value();
        let name = name.expect("no value is skipped").get_name().to_owned();
        table.add([name, shown(instructions), shown(ns)]);
    }
    table
}

fn run(shape: Shape, requests: u32) -> io::Result<u64> {
    let folder = tempfile::tempdir_in(TMPFS)?;
    let counts = folder.path().join("callgrind.out");
    let name = shape.to_possible_value();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "counted-layer",
            name.expect("no value is skipped").get_name(),
        ])
        .arg(requests.to_string());
    let status = under_callgrind(&command, &counts, &["--quiet", PATTERN]).status()?;
    total_of(&counts)
        .filter(|total| *total > 0 && status.success())
        .ok_or_else(|| io::Error::other(format!("callgrind has counted nothing ({status})")))
}

fn timed(shape: Shape) -> io::Result<f64> {
    let began = Instant::now();
    Counted {
        shape,
        requests: TIMED,
    }
    .run()?;
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(TIMED))
}

impl Counted {
    /// Asks so many times.
    pub fn run(&self) -> io::Result<()> {
        let null = || Arc::new(Null::new(Geometry::plain(1 << 30))) as Arc<dyn Disk>;
        let scope = PollScope::default();
        let disk: Arc<dyn Disk> = match self.shape {
            Shape::Bare => null(),
            Shape::Linear => Arc::new(linear(vec![null()], scope).map_err(io::Error::other)?),
            Shape::Striped => {
                let legs = (0..3).map(|_| null()).collect();
                let disk = striped(CHUNK as u64, legs, scope);
                Arc::new(disk.map_err(io::Error::other)?)
            }
        };
        let len = match self.shape {
            Shape::Striped => 3 * CHUNK,
            _ => CHUNK,
        };
        let file = rustix::fs::memfd_create("buffer", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let region = Region::map(file.into(), 0, 0, 0, len as u64).map_err(io::Error::other)?;
        // SAFETY: the region is kept until this returns, and a null disk ends requests at once.
        counted(&*disk, unsafe { region.span() }, self.requests)
    }
}

/// What is counted. Never inlined: callgrind knows it by its name.
#[inline(never)]
fn counted(disk: &dyn Disk, buffer: Span, requests: u32) -> io::Result<()> {
    let sleeper = Sleeper::new()?;
    let mut channel = disk.open_channel(sleeper.point())?;
    let loan = Loan::first(&[buffer], u64::MAX);
    for number in 0..u64::from(requests) {
        let op = Op::Read {
            at: number % 1024 * (3 * CHUNK as u64),
            // SAFETY: the loan ends below, when all requests have.
            into: unsafe { loan.spans() },
        };
        let ticket = Ticket(number);
        if channel.queue(Request { ticket, op }) != Queued::Done(Ok(())) {
            return Err(io::Error::other("a null disk ends requests at once"));
        }
    }
    loan.end();
    Ok(())
}
