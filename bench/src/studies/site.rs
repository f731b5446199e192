//! Where a trial runs: which server it finds, and how it asks about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pollux_tests::process::Process;
use pollux_tests::server::Server;

use crate::cell::{Disk, Server as Which};
use crate::compare::Comparison;
use crate::contender::Exports;
use crate::load;
use crate::measure::{Plan, Syscalls, SystemCalls, system_calls};
use crate::perf::Target;

/// The server of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which of the two.
    pub server: Which,
    /// What ours is given beyond the options of the run.
    pub options: &'static [&'static str],
    /// What it serves.
    pub exports: Exports,
    /// Where it runs.
    pub processor: Processor,
}

/// The processor of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// Its own.
    Own,
    /// That of the client.
    OfClient,
}

impl Setup {
    /// Ours, with one queue of `disk`, on its own processor.
    pub const fn ours(disk: Disk) -> Self {
        Self {
            server: Which::Ours,
            options: &[],
            exports: Exports::one(disk),
            processor: Processor::Own,
        }
    }

    /// Starts it, with its sockets in `folder`, and fills its disks where they are empty.
    pub fn start(self, comparison: &Comparison, folder: &Path) -> io::Result<Server> {
        let contender = comparison.contender(self.server);
        let contender = match self.server {
            Which::Ours => contender.with_options(self.options),
            Which::Peer => Some(contender.clone()),
        };
        let contender = contender.expect("studies are made of Pollux alone");
        let disk = self.exports.disk;
        comparison.images.prepare(disk)?;
        let cpu = match self.processor {
            Processor::Own => comparison.options.server_cpu,
            Processor::OfClient => comparison.options.client_cpu,
        };
        let server = contender.start(self.exports, comparison.images, folder, cpu)?;
        if contender.starts_empty(disk) {
            for socket in self.exports.sockets(server.socket()) {
                load::fill(&socket, disk)?;
            }
        }
        Ok(server)
    }
}

/// What the client of a trial finds.
#[derive(Clone, Debug)]
pub struct Site {
    /// A socket for each disk.
    pub sockets: Vec<PathBuf>,
    /// The server.
    pub server: Process,
    /// How long to measure.
    pub time: Duration,
    id: u32,
    folder: PathBuf,
    syscalls: Syscalls,
}

impl Site {
    /// With `server`, which was started with `setup` and files in `folder`.
    pub fn new(setup: Setup, server: &Server, folder: &Path, plan: Plan, time: Duration) -> Self {
        Self {
            sockets: setup.exports.sockets(server.socket()),
            server: Process::new(server.pid()),
            time,
            id: server.pid(),
            folder: folder.to_owned(),
            syscalls: plan.syscalls,
        }
    }

    /// The first of the sockets.
    pub fn socket(&self) -> &Path {
        &self.sockets[0]
    }

    /// What server and client ask of the kernel for each of the requests that `run` makes and counts;
    /// `None` where that cannot be counted.
    pub fn system_calls(
        &self,
        run: impl FnOnce() -> io::Result<f64>,
    ) -> io::Result<Option<SystemCalls>> {
        if self.syscalls == Syscalls::NotCounted {
            return Ok(None);
        }
        let client = Target::Process(std::process::id());
        system_calls(self.id, client, &self.folder, run).map(Some)
    }
}
