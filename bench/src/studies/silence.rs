//! What a server does when there is nothing to do.

use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use pollux_tests::client::Waiting;
use pollux_tests::process::Process;

use super::site::{Setup, Site};
use super::study::{Case, Study, only};
use crate::cell::{BLOCK, Disk, Server as Which, Work};
use crate::client::{Blkio, Client, Job};
use crate::measure::Spent;
use crate::results::findings::Finding;

/// The study.
pub struct Silence;

/// A server after a load.
#[derive(Clone, Copy)]
pub struct Trial {
    server: Which,
    disk: Disk,
    waiting: Waiting,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

const QUIET: &str = "quiet after ms";

/// How long an idle server is watched.
const WATCHED: Duration = Duration::from_secs(1);
/// A server that has not moved for so long is quiet.
const STILL: Duration = Duration::from_millis(100);
/// One that has not come to rest by then does not.
const PATIENCE: Duration = Duration::from_secs(5);

impl Study for Silence {
    type Trial = Trial;

    const TITLE: &'static str = "Idle";
    const EXPLANATION: &'static str = "\
After a load of 4 KiB reads by crate `blkio`, 16 in flight, the client stays connected and asks for nothing more: how
long after its last request was answered any thread of the server ran or went to sleep for the last time (*quiet after
ms*; read from `/proc`, a tenth of a millisecond for each reading), and what they do in a second later. *one / other*.
Asked is silence after 10 ms at most, no wake-ups and no processor time.
";
    const RATIOS: &'static [&'static str] = &[];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let case = |disk, waiting| {
            let trial = |server| Trial {
                server,
                disk,
                waiting,
            };
            Case {
                name: format!("idle/{disk}/{}", Client::Blkio(waiting).waiting()),
                trials: [Which::Ours, Which::Peer].map(trial).into(),
                rows: vec![("ours:peer", [only(0), only(1)])],
            }
        };
        let of_disk =
            |disk| [Waiting::Polling, Waiting::Blocking].map(|waiting| case(disk, waiting));
        let disks = [Disk::Null, Disk::Memory, Disk::Direct].into_iter();
        disks.flat_map(of_disk).collect()
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            server: trial.server,
            ..Setup::ours(trial.disk)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let job = Job {
            work: Work::RandRead,
            block: BLOCK,
            depth: 16,
        };
        let queues = Blkio::connect_all(site.socket(), trial.waiting, job, 1)?;
        let mut loads: Vec<_> = queues
            .into_iter()
            .map(|queue| job.start(queue, trial.disk))
            .collect();
        for load in &mut loads {
            load.run_for(site.time)?;
            load.finish()?;
        }
        let quiet = quiet_after(site.server())?;
        let before = Spent::by_servers(&site.servers)?;
        thread::sleep(WATCHED);
        let idle = before.until(&Spent::by_servers(&site.servers)?, WATCHED.as_secs_f64());
        loads.into_iter().try_for_each(|load| load.end_with(0))?;
        Ok(vec![vec![
            (QUIET, quiet.as_secs_f64() * 1e3),
            ("wake-ups/s", idle.sleeps),
            ("server CPU %", idle.cpu_us / 1e4),
        ]])
    }
}

/// How long from now on until `server` moves for the last time.
fn quiet_after(server: Process) -> io::Result<Duration> {
    let activity = || io::Result::Ok((server.sleeps()?, server.cpu_ns()?));
    let began = Instant::now();
    let (mut last, mut moved) = (activity()?, Duration::ZERO);
    while began.elapsed().saturating_sub(moved) < STILL && began.elapsed() < PATIENCE {
        let now = activity()?;
        if now != last {
            (last, moved) = (now, began.elapsed());
        }
    }
    Ok(moved)
}
