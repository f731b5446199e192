//! A mechanism of our server on against off, and off against the peer: is it worth what it is said to be, and is what
//! it is held against an honest program?

use std::fmt;
use std::io;

use pollux_load::microseconds;
use pollux_tests::client::Waiting;

use super::queues::{Queues, together};
use super::site::{Setup, Site};
use super::study::{Case, Study, only};
use crate::cell::{BLOCK, Disk, Server as Which, Work};
use crate::client::{Blkio, Client, Job};
use crate::contender::Exports;
use crate::measure::throughput;
use crate::results::findings::Finding;

/// The study.
pub struct Mechanisms;

/// What is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mechanism {
    /// M2: completions are shown before new requests are taken, or after.
    CompletionsFirst,
    /// M5: kicks are off while the worker is awake, or on between any two turns.
    QuietWhileAwake,
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    On,
    Off,
    /// The peer, under the same client.
    Peer,
}

/// A server under the load with which the mechanism was first measured.
#[derive(Clone, Copy)]
pub struct Trial {
    mechanism: Mechanism,
    state: State,
    disk: Disk,
    waiting: Waiting,
    /// How many requests the client sends at a time, at most.
    at_once: u16,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::On => "on",
            State::Off => "off",
            State::Peer => "peer",
        })
    }
}

impl Trial {
    /// Its case's, whichever server it is.
    fn name(self) -> String {
        let Self {
            mechanism, disk, ..
        } = self;
        let client = Client::Blkio(self.waiting).waiting();
        let name = format!("{}/{disk}/{client}", mechanism.name());
        if self.at_once == mechanism.job().depth {
            name
        } else {
            format!("{name}/by-{}", self.at_once)
        }
    }
}

impl Mechanism {
    const ALL: [Self; 2] = [Self::CompletionsFirst, Self::QuietWhileAwake];

    const fn name(self) -> &'static str {
        match self {
            Self::CompletionsFirst => "m2",
            Self::QuietWhileAwake => "m5",
        }
    }

    const fn options(self, state: State) -> &'static [&'static str] {
        match (self, state) {
            (Self::CompletionsFirst, State::On) => &["--signal", "completions-first"],
            (Self::CompletionsFirst, State::Off) => &["--signal", "after-submissions"],
            (Self::QuietWhileAwake, State::On) => &["--kicks", "off-while-awake"],
            (Self::QuietWhileAwake, State::Off) => &["--kicks", "per-turn"],
            (_, State::Peer) => &[],
        }
    }

    const fn disks(self) -> &'static [Disk] {
        match self {
            Self::CompletionsFirst => &[
                Disk::Direct,
                Disk::Delayed(100),
                Disk::Delayed(30),
                Disk::Delayed(10),
            ],
            Self::QuietWhileAwake => &[Disk::Null, Disk::Memory, Disk::Direct],
        }
    }

    const fn queues(self) -> u16 {
        match self {
            Self::CompletionsFirst => 4,
            Self::QuietWhileAwake => 1,
        }
    }

    /// How many requests the client sends at a time, at most: as many as have come back, or fewer, as fio does unless
    /// it is told to gather them (`iodepth_batch_submit`, 1 if not given).
    const fn at_once(self) -> &'static [u16] {
        match self {
            Self::CompletionsFirst => &[16],
            Self::QuietWhileAwake => &[64, 4, 1],
        }
    }

    /// What each of the queues is kept full of.
    const fn job(self) -> Job {
        let (work, depth) = match self {
            Self::CompletionsFirst => (Work::RandWrite, 16),
            Self::QuietWhileAwake => (Work::Read, 64),
        };
        Job {
            work,
            block: BLOCK,
            depth,
        }
    }
}

impl Study for Mechanisms {
    type Trial = Trial;

    const TITLE: &'static str = "Mechanisms of the server, on and off";
    const EXPLANATION: &'static str = "\
Pollux with a mechanism beside Pollux without (`on:off`), and without beside the peer in the same cell (`off:peer`: is
off an honest program?), as *one / other*, under crate `blkio`. *m2* is completions first (off: `--signal
after-submissions`): random writes, 16 in flight on each of four queues, of an O_DIRECT file and of *delayed*, memory
whose answers come 100, 30 or 10 µs late (the storage daemon's: `null-co` with `latency-ns`, which copies nothing).
*m5* is quiet while awake (off: `--kicks per-turn`): reads one after the other, 64 in flight on one queue, sent as they
come back, or four or one at a time (*by-4*, *by-1*; fio sends one at a time unless told otherwise). A polling client
polls its queues in turn; a blocking one has a thread for each, all on one processor. Published for M2: bandwidth ×
1.074, mean latency × 0.932; for M5: IOPS × 1.25, kicks from tens of thousands a second to tens. Bandwidth is IOPS
times 4 KiB. Kicks and calls are those of a request, counted in a phase of its own, times the IOPS of the one in which
nothing was counted.
";
    const RATIOS: &'static [&'static str] = &["k IOPS", "mean µs"];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let mut cases = vec![];
        for mechanism in Mechanism::ALL {
            for &disk in mechanism.disks() {
                for waiting in [Waiting::Polling, Waiting::Blocking] {
                    for &at_once in mechanism.at_once() {
                        let trial = |state| Trial {
                            mechanism,
                            state,
                            disk,
                            waiting,
                            at_once,
                        };
                        cases.push(Case {
                            name: trial(State::On).name(),
                            trials: [State::On, State::Off, State::Peer].map(trial).into(),
                            rows: vec![
                                ("on:off", [only(0), only(1)]),
                                ("off:peer", [only(1), only(2)]),
                            ],
                        });
                    }
                }
            }
        }
        cases
    }

    fn setup(trial: Trial) -> Setup {
        let server = match trial.state {
            State::On | State::Off => Which::Ours,
            State::Peer => Which::Peer,
        };
        Setup {
            server,
            options: trial.mechanism.options(trial.state),
            exports: Exports {
                queues: trial.mechanism.queues(),
                ..Exports::one(trial.disk)
            },
            ..Setup::ours(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let (job, waiting) = (trial.mechanism.job(), trial.waiting);
        let queues = trial.mechanism.queues();
        let queues = Blkio::connect_all(site.socket(), waiting, job, queues)?;
        let queues = queues.into_iter().map(|queue| queue.by(trial.at_once));
        let loads = (1..).zip(queues);
        let loads = loads.map(|(seed, queue)| job.start_seeded(queue, trial.disk, seed));
        let mut queues = Queues::new(loads.collect(), waiting);
        let quarter = site.time / 4;
        queues.run_for(quarter)?;
        let speed = throughput(&site.servers, || queues.run_all_for(site.time))?;
        let latencies = together(&queues.run_timed(site.time / 2)?);
        let asked = site.system_calls(|| queues.run_all_for(quarter))?;
        queues.end()?;
        let mut finding = vec![
            ("k IOPS", speed.iops / 1e3),
            ("mean µs", latencies.mean() / 1e3),
            ("p99 µs", microseconds(&latencies, 0.99)),
            ("server µs", speed.server.cpu_us),
        ];
        let a_second = |each: Option<f64>| each.map(|each| each * speed.iops);
        if let Some(kicks) = asked.and_then(|asked| a_second(asked.kicks)) {
            finding.push(("kicks/s", kicks));
        }
        if let Some(calls) = asked.and_then(|asked| a_second(asked.calls)) {
            finding.push(("calls/s", calls));
        }
        Ok(vec![finding])
    }
}
