//! Who shares a worker, or its processor: idle queues beside a busy one, two busy disks, small requests beside large
//! ones, and server and client on one processor.

use std::fmt;
use std::io;

use pollux_load::{Client as _, Closed, microseconds};
use pollux_tests::client::Waiting;

use super::queues::Queues;
use super::site::{Processor, Setup, Site};
use super::study::{Case, Place, Study, only};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::{Blkio, Client, Job};
use crate::contender::Exports;
use crate::measure::throughput;
use crate::results::findings::Finding;

/// The study.
pub struct Sharing;

/// A server, and the queues of it that are busy.
#[derive(Clone, Copy)]
pub struct Trial {
    disk: Disk,
    /// Of each disk, of which the first is busy.
    queues: u16,
    /// In flight on each disk.
    depths: &'static [u16],
    /// Bytes of each request, on each disk.
    blocks: &'static [usize],
    waiting: Waiting,
    options: &'static [&'static str],
    processor: Processor,
}

impl Trial {
    const fn new(disk: Disk, depths: &'static [u16], waiting: Waiting) -> Self {
        Self {
            disk,
            queues: 1,
            depths,
            blocks: &[BLOCK; 2],
            waiting,
            options: &[],
            processor: Processor::Own,
        }
    }

    /// A full queue of each disk; and the idle ones, which belong to the connections.
    fn connect(self, site: &Site) -> io::Result<(Vec<Closed<Blkio>>, Vec<Blkio>)> {
        let (mut busy, mut idle) = (vec![], vec![]);
        let each = self.depths.iter().zip(self.blocks);
        for (socket, (&depth, &block)) in site.sockets.iter().zip(each) {
            let job = Job {
                work: Work::RandRead,
                block,
                depth,
            };
            let queues = Blkio::connect_all(socket, self.waiting, job, self.queues)?;
            let mut queues = queues.into_iter();
            busy.extend(queues.next().map(|first| job.start(first, self.disk)));
            idle.extend(queues);
        }
        Ok((busy, idle))
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depths: Vec<String> = self.depths.iter().map(u16::to_string).collect();
        write!(f, "queues {}, depth {}", self.queues, depths.join("+"))?;
        self.options
            .iter()
            .try_for_each(|option| write!(f, " {option}"))
    }
}

impl Study for Sharing {
    type Trial = Trial;

    const TITLE: &'static str = "Sharing a worker, and a processor";
    const EXPLANATION: &'static str = "\
4 KiB reads by crate `blkio`; *one / other*. `idle`: one busy queue of *null* with 127 idle queues of its session
beside it, and the same without them. `disks`: two busy disks in memory on one worker, so many in flight on one and on
the other, polled in turn by one thread: the first beside the second, and each beside itself alone; *share* is of the
requests of both. Fair is that neither waits behind more than 64 requests of the other for each turn: 4 in flight get 4
of 68, and as many as the other's get as much. `large`: one request of 4 KiB at a time beside 64 of 4 MiB on another
disk of the worker, and alone: what it waits for is one turn of the other's. `core`: server and client on one
processor, the client blocking, adaptive beside `--poll never`: asked is 0.95.
";
    const RATIOS: &'static [&'static str] = &["k IOPS", "p99 µs"];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let mut cases = idle();
        cases.extend(disks());
        cases.push(large());
        cases.extend(core());
        cases
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            options: trial.options,
            exports: Exports {
                queues: trial.queues,
                count: trial.depths.len(),
                ..Exports::one(trial.disk)
            },
            processor: trial.processor,
            ..Setup::ours(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let (busy, idle) = trial.connect(site)?;
        let mut queues = Queues::new(busy, trial.waiting);
        queues.run_for(site.time / 4)?;
        let mut counts = vec![];
        let all = throughput(&site.servers, || {
            counts = queues.run_for(site.time)?;
            Ok(counts.iter().copied().map(f64::from).sum())
        })?;
        let latencies = queues.run_timed(site.time / 2)?;
        queues.end()?;
        idle.into_iter().try_for_each(|queue| queue.end(0))?;
        let sum: f64 = counts.iter().copied().map(f64::from).sum();
        let finding = |(count, latencies)| {
            let share = f64::from(count) / sum;
            vec![
                ("k IOPS", share * all.iops / 1e3),
                ("share", share),
                ("p50 µs", microseconds(latencies, 0.5)),
                ("p99 µs", microseconds(latencies, 0.99)),
                ("server µs", all.server.cpu_us),
            ]
        };
        Ok(counts.into_iter().zip(&latencies).map(finding).collect())
    }
}

const SHALLOW: [&[u16]; 2] = [&[1], &[16]];

/// One busy queue with idle ones beside it, and without.
fn idle() -> Vec<Case<Trial>> {
    let case = |waiting, depths: &'static [u16]| {
        let trial = |queues| Trial {
            queues,
            ..Trial::new(Disk::Null, depths, waiting)
        };
        let client = Client::Blkio(waiting).waiting();
        Case {
            name: format!("sharing/idle/{client}/{}", depths[0]),
            trials: [128, 1].map(trial).into(),
            rows: vec![("128 queues:1", [only(0), only(1)])],
        }
    };
    let waits = [Waiting::Polling, Waiting::Blocking].into_iter();
    waits
        .flat_map(|waiting| SHALLOW.map(|depths| case(waiting, depths)))
        .collect()
}

/// Two busy disks on one worker, and each of them alone.
fn disks() -> Vec<Case<Trial>> {
    let case = |depths: &'static [u16; 2]| {
        let trial = |depths| Trial::new(Disk::Memory, depths, Waiting::Polling);
        let of_both = |finding| Place { trial: 0, finding };
        Case {
            name: format!("sharing/disks/{}+{}", depths[0], depths[1]),
            trials: [&depths[..], &depths[..1], &depths[1..]].map(trial).into(),
            rows: vec![
                ("first:second", [of_both(0), of_both(1)]),
                ("first:alone", [of_both(0), only(1)]),
                ("second:alone", [of_both(1), only(2)]),
            ],
        }
    };
    vec![case(&[4, 128]), case(&[64, 64])]
}

/// A disk beside another one that has large requests in flight, and alone.
fn large() -> Case<Trial> {
    let trial = |depths| Trial {
        blocks: &[BLOCK, 4 << 20],
        ..Trial::new(Disk::Memory, depths, Waiting::Polling)
    };
    Case {
        name: "sharing/large/1+64".into(),
        trials: [&[1, 64][..], &[1]].map(trial).into(),
        rows: vec![("first:alone", [only(0), only(1)])],
    }
}

/// Server and client on one processor.
fn core() -> Vec<Case<Trial>> {
    const MODES: [&[&str]; 2] = [&["--poll", "adaptive"], &["--poll", "never"]];
    let case = |disk, depths: &'static [u16]| {
        let trial = |options| Trial {
            options,
            processor: Processor::OfClient,
            ..Trial::new(disk, depths, Waiting::Blocking)
        };
        Case {
            name: format!("sharing/core/{disk}/{}", depths[0]),
            trials: MODES.map(trial).into(),
            rows: vec![("adaptive:never", [only(0), only(1)])],
        }
    };
    let disks = [Disk::Null, Disk::Memory].into_iter();
    disks
        .flat_map(|disk| SHALLOW.map(|depths| case(disk, depths)))
        .collect()
}
