//! Where a trial runs: which server it finds, and how it asks about it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pollux_tests::process::Process;
use pollux_tests::server::Server;

use crate::cell::{Disk, Server as Which};
use crate::compare::Comparison;
use crate::contender::{Contender, Exports};
use crate::contenders::Contenders;
use crate::measure::{Cost, Spent, Syscalls, SystemCalls, system_calls};
use crate::pairing::Distance;
use crate::perf::Target;
use crate::round_trip::{self, Processors};
use crate::uml;

/// The servers of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which one of those that there are.
    pub server: Which,
    /// What ours is given beyond the options of the run.
    pub options: &'static [&'static str],
    /// What it serves.
    pub exports: Exports,
    /// How many processes of it, each with such exports; with none, the client has the file alone.
    pub processes: usize,
    /// Where they run.
    pub processor: Processor,
}

/// One of several servers under the same client: ours as it is and without polling, and all others that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Ours.
    Ours,
    /// Ours with `--poll never`.
    Never,
    /// Another.
    Other(Which),
}

impl Rival {
    /// Each of those that stand beside ours.
    pub const OTHERS: [Self; 4] = [
        Self::Never,
        Self::Other(Which::Peer),
        Self::Other(Which::StorageDaemon),
        Self::Other(Which::Spdk),
    ];

    /// The same without SPDK.
    pub const WITHOUT_SPDK: &[Self] = Self::OTHERS.split_at(3).0;

    /// For a trial with it.
    pub const fn setup(self, disk: Disk) -> Setup {
        let ours = Setup::ours(disk);
        match self {
            Self::Ours => ours,
            Self::Never => Setup {
                options: &["--poll", "never"],
                ..ours
            },
            Self::Other(server) => Setup { server, ..ours },
        }
    }

    /// For a row that holds ours against it.
    pub const fn row(self) -> &'static str {
        match self {
            Self::Ours | Self::Other(Which::Ours) => "ours:ours",
            Self::Never => "ours:never",
            Self::Other(Which::Peer) => "ours:peer",
            Self::Other(Which::StorageDaemon) => "ours:qsd",
            Self::Other(Which::Spdk) => "ours:spdk",
        }
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("ours"),
            Self::Never => f.write_str("never"),
            Self::Other(server) => server.fmt(f),
        }
    }
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
            processes: 1,
            processor: Processor::Own,
        }
    }

    /// The server, with what it is given; `None` if it is not there.
    pub fn contender(self, contenders: &Contenders) -> Option<Contender> {
        let contender = contenders.get(self.server)?;
        match self.server {
            Which::Ours => contender.with_options(self.options),
            _ => Some(contender.clone()),
        }
    }

    /// Starts them, with their sockets in folders below `folder`, and fills their disks where they are empty.
    pub fn start(self, comparison: &Comparison, folder: &Path) -> io::Result<Vec<Server>> {
        let contender = self.contender(comparison.contenders);
        let contender = contender.expect("trials without a server are left out");
        let processors = comparison.plan.processors;
        let cpu = match self.processor {
            Processor::Own => processors.other,
            Processor::OfClient => processors.own,
        };
        let one = |number: usize| {
            let folder = folder.join(number.to_string());
            fs::create_dir(&folder)?;
            comparison.serve(&contender, self.exports, &folder, cpu)
        };
        if self.processes == 0 {
            let Exports { disk, copy, .. } = self.exports;
            comparison.images.prepare(disk, copy)?;
        }
        (0..self.processes).map(one).collect()
    }
}

/// What the client of a trial finds.
#[derive(Clone, Debug)]
pub struct Site {
    /// A socket for each disk of each server.
    pub sockets: Vec<PathBuf>,
    /// Each server.
    pub servers: Vec<Process>,
    /// How long to measure.
    pub time: Duration,
    /// For files of its own.
    pub folder: PathBuf,
    /// The configuration of the cluster, from its first image on.
    pub conf: Option<PathBuf>,
    syscalls: Syscalls,
    /// Where the client and the servers are.
    pub processors: Processors,
    seen: Arc<Seen>,
}

/// At which distance [`Site::watched`] was; nothing where the whole trial matters.
pub type Seen = OnceLock<Option<Distance>>;

impl Site {
    /// With `servers`, which were started with `setup` and files in `folder`.
    pub fn new(
        setup: Setup,
        servers: &[Server],
        folder: &Path,
        comparison: &Comparison,
        time: Duration,
        seen: &Arc<Seen>,
    ) -> Self {
        let sockets = servers
            .iter()
            .map(|server| setup.exports.sockets(server.socket()));
        let processes = servers.iter().map(|server| Process::new(server.pid()));
        Self {
            sockets: sockets.flatten().collect(),
            servers: processes.collect(),
            time,
            folder: folder.to_owned(),
            conf: comparison.images.conf(),
            syscalls: comparison.plan.syscalls,
            processors: comparison.plan.processors,
            seen: Arc::clone(seen),
        }
    }

    /// What `measure` finds: the part of a trial, of those that have long ones besides, that matters. The host may move
    /// the processors before and after it.
    pub fn watched<T>(&self, measure: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let tagged = round_trip::tagged(self.processors, measure)?;
        self.seen.set(tagged.distance).expect("once a trial");
        Ok(tagged.found)
    }

    /// Measures `load` in a guest that has the servers' disks, and what the servers spend on it. Not its boot, during
    /// which the host may do as it likes.
    pub fn in_guest(&self, load: uml::Load) -> io::Result<(uml::Report, Cost)> {
        let spent = || Spent::by_servers(&self.servers);
        let (report, [before, after]) = uml::measure(&self.sockets, load, |run| {
            self.watched(|| {
                let before = spent()?;
                run()?;
                Ok([before, spent()?])
            })
        })?;
        let cost = before.until(&after, report.requests);
        Ok((report, cost))
    }

    /// The first of the servers.
    pub fn server(&self) -> Process {
        self.servers[0]
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
        system_calls(self.server().id(), client, &self.folder, run).map(Some)
    }
}
