//! Our own driver of a Linux guest: beside Linux's own, and beside itself in other modes.

use std::fmt;
use std::io;

use super::site::{Setup, Site};
use super::study::{Case, Median, Study, only};
use crate::cell::{BLOCK, Disk, Server, Work};
use crate::contender::Exports;
use crate::results::findings::{Finding, SPEED};
use crate::results::plot::{Line, Panel, Plot};
use crate::uml::{self, Driver, Kick, Stack, Way};

/// The study.
pub struct Guest;

/// A guest in front of a server.
#[derive(Clone, Copy)]
pub struct Trial {
    server: Server,
    /// What ours is given.
    options: &'static [&'static str],
    disk: Disk,
    queues: u16,
    driver: Driver,
    stack: Stack,
    way: Way,
    work: Work,
    jobs: u16,
    depth: u16,
    block: usize,
    /// Two virtual processors on two real ones, of which the server shares one.
    spread: bool,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.driver {
            Driver::Stock { .. } => f.write_str("virtio_blk, ")?,
            Driver::Ours(Kick::UnderLockTimed) => f.write_str("kick under the lock, ")?,
            Driver::Ours(_) => f.write_str("pollux_blk, ")?,
        }
        f.write_str(match self.way {
            Way::Interrupts => "interrupts",
            Way::Polled => "polled",
            Way::Mixed => "mixed",
        })?;
        self.options
            .iter()
            .try_for_each(|option| write!(f, " {option}"))
    }
}

const P50: &str = "p50 µs";
const P99: &str = "p99 µs";
const INTERRUPTS: &str = "interrupts";
const WAITED: &str = "lock wait µs";
const HOLD: &str = "longest hold µs";

const OURS: Driver = Driver::Ours(Kick::AfterLock);

/// Four threads of one request each, on one queue of a disk in memory.
const FOUR: Trial = Trial {
    server: Server::Ours,
    options: &[],
    disk: Disk::Memory,
    queues: 1,
    driver: OURS,
    stack: Stack::Bare,
    way: Way::Interrupts,
    work: Work::RandRead,
    jobs: 4,
    depth: 1,
    block: BLOCK,
    spread: false,
};

const KIB: [usize; 4] = [4, 16, 64, 128];
const WORKS: [Work; 4] = [Work::RandRead, Work::RandWrite, Work::Read, Work::Write];

impl Study for Guest {
    type Trial = Trial;

    const TITLE: &'static str = "The guest's driver";
    const EXPLANATION: &'static str = "\
A User-Mode Linux guest on the client's processor, with a virtual processor for each queue, booted for each
measurement; threads inside its kernel keep requests to a disk in memory in flight. *m1*: four threads of one request
each, polled against interrupt-driven, on one queue of `pollux_blk`. *shared*: polled on two queues that everybody
shares, against `virtio_blk` with one of two queues set aside for polling; *mixed*: two of the threads poll, two are
interrupted, on the same queues. *plain*: one thread by interrupts, `pollux_blk` against `virtio_blk`, in front of
several servers. *m4*: four polling readers on one queue, the kick after the lock against the kick under it; here the
guest has two virtual processors on two real ones, and the server, which shares one of them, never polls. *dm*:
device-mapper over three disks, polled against interrupt-driven. *m2*, *m5*: mechanisms of the server, on and off, as
the set `mechanisms` has them, one thread and one queue: writes of 16 in flight to a disk in memory that answers after
10 µs, and reads of 64 in flight. An interrupt is a signal there, some 20 µs, and its
clock steps by 256 ns. *interrupts* are for each request.
";
    const RATIOS: &'static [&'static str] = &[SPEED, P50, INTERRUPTS, WAITED, HOLD];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let mut cases = published();
        cases.extend(beside_stock());
        cases.push(two(
            "guest/m4".to_owned(),
            "after:under",
            [Kick::AfterLockTimed, Kick::UnderLockTimed].map(|kick| Trial {
                driver: Driver::Ours(kick),
                way: Way::Polled,
                options: &["--poll", "never"],
                spread: true,
                ..FOUR
            }),
        ));
        for (stack, name) in [(Stack::Linear, "linear"), (Stack::Striped, "striped")] {
            for jobs in [1, 3] {
                let trial = Trial {
                    stack,
                    jobs,
                    ..FOUR
                };
                cases.push(polled_beside_interrupts(
                    format!("guest/dm/{name}/{jobs}"),
                    trial,
                ));
            }
        }
        cases.extend(mechanisms());
        cases
    }

    fn check() -> io::Result<()> {
        uml::check()
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            server: trial.server,
            exports: Exports {
                queues: trial.queues,
                count: if trial.stack == Stack::Bare { 1 } else { 3 },
                ..Exports::one(trial.disk)
            },
            options: trial.options,
            ..Setup::ours(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let load = uml::Load {
            // A queue belongs to one at least.
            processors: if trial.spread { 2 } else { trial.queues },
            spread: trial.spread.then_some(site.processors),
            driver: trial.driver,
            stack: trial.stack,
            way: trial.way,
            work: trial.work,
            jobs: trial.jobs,
            depth: trial.depth,
            block: trial.block,
            time: site.time,
        };
        let (report, server) = site.in_guest(load)?;
        let mut finding = vec![
            (SPEED, report.iops / 1e3),
            (P50, report.p50_us),
            (P99, report.p99_us),
            (INTERRUPTS, report.interrupts / report.requests),
            ("server µs", server.cpu_us),
        ];
        if let Some(locks) = report.locks {
            finding.push((WAITED, locks.waited_us / report.requests));
            finding.push((HOLD, locks.longest_hold_us));
        }
        Ok(vec![finding])
    }

    fn plot(medians: &[Median<Trial>]) -> Option<Plot> {
        let panel = |work: Work| Panel {
            title: format!("four threads, {work}"),
            x: "KiB of a request",
            y: SPEED,
            lines: [(Way::Polled, "polled"), (Way::Interrupts, "interrupts")]
                .map(|(way, name)| line(medians, work, way, name))
                .into(),
        };
        Some(Plot {
            file: "guest.svg",
            panels: WORKS.map(panel).into(),
        })
    }
}

fn line(medians: &[Median<Trial>], work: Work, way: Way, name: &'static str) -> Line {
    let point = |(trial, finding): &Median<Trial>| {
        let published = trial.driver == OURS && trial.stack == Stack::Bare && trial.jobs == 4;
        let wanted = published && trial.queues == 1 && trial.work == work && trial.way == way;
        let speed = finding.iter().find(|(name, _)| *name == SPEED)?;
        let kib = u32::try_from(trial.block / 1024).ok()?;
        wanted.then_some((f64::from(kib), speed.1))
    };
    let mut points: Vec<(f64, f64)> = medians.iter().filter_map(point).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Line {
        name: name.to_owned(),
        points,
    }
}

/// The published table.
fn published() -> Vec<Case<Trial>> {
    let mut cases = vec![];
    for work in WORKS {
        for kib in KIB {
            let trial = Trial {
                work,
                block: kib << 10,
                ..FOUR
            };
            cases.push(polled_beside_interrupts(
                format!("guest/m1/{work}/{kib}k"),
                trial,
            ));
        }
    }
    cases
}

fn polled_beside_interrupts(name: String, trial: Trial) -> Case<Trial> {
    let trials = [Way::Polled, Way::Interrupts].map(|way| Trial { way, ..trial });
    two(name, "polled:interrupts", trials)
}

/// Ours beside Linux's own.
fn beside_stock() -> Vec<Case<Trial>> {
    let beside = |name: String, trial: Trial, poll_queues| {
        let stock = Driver::Stock { poll_queues };
        two(
            name,
            "ours:stock",
            [OURS, stock].map(|driver| Trial { driver, ..trial }),
        )
    };
    let mut cases = vec![];
    for (name, way) in [("shared", Way::Polled), ("mixed", Way::Mixed)] {
        let trial = Trial {
            way,
            queues: 2,
            ..FOUR
        };
        cases.push(beside(format!("guest/{name}"), trial, 1));
    }
    for server in [Server::Ours, Server::StorageDaemon, Server::Spdk] {
        for depth in [1, 32] {
            let trial = Trial {
                server,
                jobs: 1,
                depth,
                ..FOUR
            };
            cases.push(beside(format!("guest/plain/{server}/{depth}"), trial, 0));
        }
    }
    cases
}

/// Those of the server.
fn mechanisms() -> Vec<Case<Trial>> {
    const SIGNAL: [&[&str]; 2] = [
        &["--signal", "completions-first"],
        &["--signal", "after-submissions"],
    ];
    const KICKS: [&[&str]; 2] = [&["--kicks", "off-while-awake"], &["--kicks", "per-turn"]];
    let m2 = Trial {
        disk: Disk::Delayed(10),
        work: Work::RandWrite,
        jobs: 1,
        depth: 16,
        ..FOUR
    };
    let m5 = Trial {
        work: Work::Read,
        jobs: 1,
        depth: 64,
        ..FOUR
    };
    let mut cases = vec![];
    for (way, how) in [(Way::Polled, "polled"), (Way::Interrupts, "interrupts")] {
        for (name, trial, switch) in [("m2", m2, SIGNAL), ("m5", m5, KICKS)] {
            let trials = switch.map(|options| Trial {
                options,
                way,
                ..trial
            });
            cases.push(two(format!("guest/{name}/{how}"), "on:off", trials));
        }
    }
    cases
}

fn two(name: String, row: &'static str, trials: [Trial; 2]) -> Case<Trial> {
    Case {
        name,
        trials: trials.into(),
        rows: vec![(row, [only(0), only(1)])],
    }
}
