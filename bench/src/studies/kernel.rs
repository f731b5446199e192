//! Linux's own driver in front: it is awake while it submits, whatever its interrupts say.

use std::fmt;
use std::io;

use super::site::{Rival, Setup, Site};
use super::study::{Case, Study, beside_all};
use crate::cell::{BLOCK, Disk, Work};
use crate::contender::Exports;
use crate::results::findings::{Finding, SPEED};
use crate::uml::{self, Driver, Stack, Way};

/// The study.
pub struct Kernel;

/// A guest in front of a server.
#[derive(Clone, Copy)]
pub struct Trial {
    disk: Disk,
    polled: bool,
    depth: u16,
    rival: Rival,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rival.fmt(f)
    }
}

const P50: &str = "p50 µs";
const SERVER: &str = "server µs";

impl Study for Kernel {
    type Trial = Trial;

    const TITLE: &'static str = "Linux in front";
    const EXPLANATION: &'static str = "\
A User-Mode Linux guest on the client's processor, booted for each measurement, with Linux's own `virtio_blk`; inside
its kernel a thread keeps 4 KiB random reads in flight and polls for them (`polled`, with two virtual processors, one
default queue and one to poll), or sleeps until it is interrupted (`interrupts`, with one processor and one queue). An
interrupt is a signal there, some 20 µs, and its clock steps by 256 ns. *interrupts* are those of the disk for each
request, as the guest counts them.
";
    const RATIOS: &'static [&'static str] = &[SPEED, P50, SERVER];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let mut cases = vec![];
        for disk in [Disk::Null, Disk::Memory, Disk::Tmpfs, Disk::Direct] {
            for (polled, way) in [(true, "polled"), (false, "interrupts")] {
                for depth in [1, 4, 32, 128] {
                    let trial = |rival| Trial {
                        disk,
                        polled,
                        depth,
                        rival,
                    };
                    let name = format!("kernel/{disk}/{way}/{depth}");
                    cases.push(beside_all(trial, name, &Rival::OTHERS));
                }
            }
        }
        cases
    }

    fn check() -> io::Result<()> {
        uml::check()
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            exports: Exports {
                queues: 2,
                ..Exports::one(trial.disk)
            },
            ..trial.rival.setup(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let load = uml::Load {
            // A second one is what `virtio_blk` wants for a queue to poll. Interrupts all go to the first, and on one
            // processor of the host the two would wait for each other.
            processors: 1 + u16::from(trial.polled),
            spread: None,
            driver: Driver::Stock {
                poll_queues: trial.polled.into(),
            },
            stack: Stack::Bare,
            way: if trial.polled {
                Way::Polled
            } else {
                Way::Interrupts
            },
            work: Work::RandRead,
            jobs: 1,
            depth: trial.depth,
            block: BLOCK,
            time: site.time,
        };
        let (report, server) = site.in_guest(load)?;
        Ok(vec![vec![
            (SPEED, report.iops / 1e3),
            (P50, report.p50_us),
            ("p99 µs", report.p99_us),
            ("interrupts", report.interrupts / report.requests),
            (SERVER, server.cpu_us),
            ("server sleeps", server.sleeps),
        ]])
    }
}
