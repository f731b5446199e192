//! Many servers on one processor, each a process of its own: one that polls keeps the others from their work.

use std::fmt;
use std::io;
use std::time::Duration;

use pollux_driver::{Waiter, Waiting};
use pollux_load::microseconds;

use super::curve::{self, AWAKE, CPU, P50, P99};
use super::open_loop::{JOB, at_rate};
use super::site::{Rival, Setup, Site};
use super::study::{Case, Study, beside_all};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::Job;
use crate::measure::throughput;
use crate::results::findings::{Finding, SPEED};
use crate::stripe;

/// The study.
pub struct Density;

const DISK: Disk = Disk::Null;
const SERVERS: [u16; 4] = [1, 3, 8, 32];
/// So many servers of one kind.
#[derive(Clone, Copy)]
pub struct Trial {
    servers: u16,
    load: Demand,
    rival: Rival,
}

/// What is asked of all servers together.
#[derive(Clone, Copy)]
enum Demand {
    /// As much as they can do with so many requests in flight.
    InFlight(u16),
    /// So many requests a second of each, waited for in this way.
    OfEach(u32, Waiting),
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rival.fmt(f)
    }
}

impl Study for Density {
    type Trial = Trial;

    const TITLE: &'static str = "Many servers on one processor";
    const EXPLANATION: &'static str = "\
One server or several of *null*, each a process of its own with one queue, all on one processor; one thread on the
other reads 4 KiB at a time from a disk striped over all of them, by our driver. Saturated: so many requests in flight
on all of them together, by a client that sleeps whenever nothing has ended. At a rate: an open loop of so many
requests a second of each, by a client that polls for what has ended and sleeps only while nothing is in flight, as in
*Processor time and latency against load* (`rate`), or by one that sleeps whenever nothing has ended and is called, as
most guests do (`called`; its own timer and wake-ups are in the latencies). Processor time is that of all servers.
";
    const RATIOS: &'static [&'static str] = &[SPEED, CPU, P50, P99];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let saturated =
            [1, 4, 16, 128].map(|depth| (format!("full/{depth}"), Demand::InFlight(depth)));
        let at_a_rate = [("rate", Waiting::Polled), ("called", Waiting::Call)]
            .into_iter()
            .flat_map(|(name, waiting)| {
                let of_each = |rate| (format!("{name}/{rate}"), Demand::OfEach(rate, waiting));
                [100, 1000].map(of_each)
            });
        let mut cases = vec![];
        for (name, load) in saturated.into_iter().chain(at_a_rate) {
            for servers in SERVERS {
                let trial = |rival| Trial {
                    servers,
                    load,
                    rival,
                };
                let name = format!("density/{servers}/{name}");
                cases.push(beside_all(trial, name, Rival::WITHOUT_SPDK));
            }
        }
        cases
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            processes: trial.servers.into(),
            ..trial.rival.setup(DISK)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        Ok(vec![match trial.load {
            Demand::InFlight(depth) => saturated(depth, site)?,
            Demand::OfEach(rate, waiting) => {
                let job = Job {
                    work: Work::Read,
                    ..JOB
                };
                let client = stripe::connect(&site.sockets, Waiter::new(waiting)?, job)?;
                let rate = rate * u32::from(trial.servers);
                let awake = match waiting {
                    Waiting::Call => Duration::ZERO,
                    _ => AWAKE,
                };
                let mut client = at_rate(client, job, DISK, rate, awake)?;
                curve::measure(&mut client, site)?
            }
        }])
    }
}

fn saturated(depth: u16, site: &Site) -> io::Result<Finding> {
    let job = Job {
        work: Work::RandRead,
        block: BLOCK,
        depth,
    };
    let waiter = Waiter::new(Waiting::Call)?;
    let client = stripe::connect(&site.sockets, waiter, job)?;
    let mut load = job.start(client, DISK);
    load.run_for(site.time / 4)?;
    let speed = throughput(&site.servers, || load.run_for(site.time).map(f64::from))?;
    let latencies = load.run_timed(site.time / 2)?;
    load.end()?;
    Ok(vec![
        (SPEED, speed.iops / 1e3),
        (P50, microseconds(&latencies, 0.5)),
        (P99, microseconds(&latencies, 0.99)),
        ("server µs", speed.server.cpu_us),
        ("server sleeps", speed.server.sleeps),
    ])
}
