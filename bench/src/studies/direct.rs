//! What a disk that takes its time costs of the server's processor, and what large requests do where there is no disk.

use std::fmt;
use std::io;

use pollux_load::microseconds;
use pollux_tests::client::Waiting;

use super::site::{Rival, Setup, Site};
use super::study::{Case, Study, beside_all};
use crate::cell::{Disk, Work};
use crate::client::{Blkio, Client, Job};
use crate::measure::throughput;
use crate::results::findings::{Finding, SPEED};

/// The study.
pub struct Direct;

/// A server under one queue of requests.
#[derive(Clone, Copy)]
pub struct Trial {
    disk: Disk,
    job: Job,
    waiting: Waiting,
    rival: Rival,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rival.fmt(f)
    }
}

const SERVER: &str = "server µs";
const P50: &str = "p50 µs";

impl Study for Direct {
    type Trial = Trial;

    const TITLE: &'static str = "A disk of its own, and large requests";
    const EXPLANATION: &'static str = "\
Requests of 4 KiB to 1 MiB at random offsets of an O_DIRECT file, by crate `blkio` on one queue: what does the server
spend of its processor on each, and what does that bring? Below, requests of 64 KiB and 1 MiB of *memory* and *tmpfs*.
A name is disk/client/requests/depth.
";
    const RATIOS: &'static [&'static str] = &[SPEED, P50, SERVER];
    const SHARE_OF_RUNTIME: f64 = 0.5;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        const DEPTHS: [u16; 4] = [1, 4, 16, 128];
        const FEW: [u16; 3] = [1, 4, 16];
        let mut cases = of_blocks(Disk::Direct, &[4, 16, 64, 1024], &DEPTHS);
        for disk in [Disk::Memory, Disk::Tmpfs] {
            cases.extend(of_blocks(disk, &[64, 1024], &FEW));
        }
        cases
    }

    fn setup(trial: Trial) -> Setup {
        trial.rival.setup(trial.disk)
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let Trial { disk, job, .. } = trial;
        let client = Blkio::connect(site.socket(), trial.waiting, job)?;
        let mut load = job.start(client, disk);
        load.run_for(site.time / 4)?;
        let speed = throughput(&site.servers, || load.run_for(site.time).map(f64::from))?;
        let latencies = load.run_timed(site.time)?;
        load.end()?;
        let mut finding = vec![
            (SPEED, speed.iops / 1e3),
            (SERVER, speed.server.cpu_us),
            ("client µs", speed.client.cpu_us),
        ];
        // Of a deep queue of large requests none may both begin and end in a short time.
        if !latencies.is_empty() {
            finding.push((P50, microseconds(&latencies, 0.5)));
            finding.push(("p99 µs", microseconds(&latencies, 0.99)));
        }
        Ok(vec![finding])
    }
}

/// Requests of so many KiB each.
fn of_blocks(disk: Disk, blocks: &[usize], depths: &[u16]) -> Vec<Case<Trial>> {
    let mut cases = vec![];
    for waiting in [Waiting::Polling, Waiting::Blocking] {
        for work in [Work::RandRead, Work::RandWrite] {
            for &kib in blocks {
                for &depth in depths {
                    let job = Job {
                        work,
                        block: kib << 10,
                        depth,
                    };
                    let trial = |rival| Trial {
                        disk,
                        job,
                        waiting,
                        rival,
                    };
                    let client = Client::Blkio(waiting).waiting();
                    let name = format!("direct/{disk}/{client}/{work}-{kib}k/{depth}");
                    cases.push(beside_all(trial, name, Rival::WITHOUT_SPDK));
                }
            }
        }
    }
    cases
}
