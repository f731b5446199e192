//! Images in a Ceph cluster by a server, and by a client that has librbd in its own process.

use std::fmt;
use std::io;

use pollux_load::microseconds;
use pollux_tests::client::Waiting;

use super::site::{Rival, Setup, Site};
use super::study::{Case, Study, only};
use crate::cell::{BLOCK, Disk, Server, Work};
use crate::client::{Blkio, Job};
use crate::contender::Exports;
use crate::fio;
use crate::images::Images;
use crate::measure::throughput;
use crate::results::findings::{Finding, SPEED};
use crate::round_trip::Processors;

/// The study.
pub struct Librbd;

/// One way to an image.
#[derive(Clone, Copy)]
pub struct Trial {
    way: Way,
    job: Job,
}

#[derive(Clone, Copy)]
enum Way {
    Server(Rival),
    /// With the processors of server and client.
    Fio,
    /// With the server's alone.
    BoundFio,
}

impl Way {
    const ALL: [Self; 4] = [
        Self::Server(Rival::Ours),
        Self::Server(Rival::Other(Server::Peer)),
        Self::Fio,
        Self::BoundFio,
    ];

    /// An image of its own: a server that was killed holds the lock of its image for a while.
    const fn image(self) -> usize {
        match self {
            Self::Server(Rival::Other(_)) => 1,
            Self::Server(_) => 0,
            Self::Fio | Self::BoundFio => 2,
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.way {
            Way::Server(rival) => rival.fmt(f),
            Way::Fio => f.write_str("fio"),
            Way::BoundFio => f.write_str("bound"),
        }
    }
}

const SERVER: &str = "server µs";
const ALL: &str = "all µs";
const P50: &str = "p50 µs";

impl Study for Librbd {
    type Trial = Trial;

    const TITLE: &'static str = "A server of images in a Ceph cluster, and librbd without one";
    const EXPLANATION: &'static str = "\
Requests at random offsets of an image in one cluster, which this run starts (a monitor, and an OSD that keeps
everything in memory). *ours* and *peer* are servers: crate `blkio` sleeps for their calls on a processor of its own,
and librbd's threads run on the server's. *fio* is no server: its engine `rbd` calls the same librbd, without its cache
as the servers do. It has both processors, as much as a server and its client, or (*bound*) the server's alone.
*all µs* is the processor time of server and client for each request, beside that of the whole of fio. A name is
librbd/requests/depth.
";
    const RATIOS: &'static [&'static str] = &[SPEED, P50, SERVER, ALL];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let mut cases = vec![];
        for block in [BLOCK, 64 << 10] {
            for work in [Work::RandRead, Work::RandWrite] {
                for depth in [1, 16, 128] {
                    let job = Job { work, block, depth };
                    cases.push(Case {
                        name: format!("librbd/{work}-{}k/{depth}", block >> 10),
                        trials: Way::ALL.map(|way| Trial { way, job }).into(),
                        rows: vec![
                            ("ours:peer", [only(0), only(1)]),
                            ("ours:fio", [only(0), only(2)]),
                            ("ours:bound", [only(0), only(3)]),
                        ],
                    });
                }
            }
        }
        cases
    }

    fn check() -> io::Result<()> {
        Images::check(Disk::Rbd)?;
        fio::check()
    }

    fn setup(Trial { way, .. }: Trial) -> Setup {
        let server = match way {
            Way::Server(rival) => rival.setup(Disk::Rbd),
            Way::Fio | Way::BoundFio => Setup {
                processes: 0,
                ..Setup::ours(Disk::Rbd)
            },
        };
        let exports = Exports {
            copy: way.image(),
            ..server.exports
        };
        Setup { exports, ..server }
    }

    fn run(Trial { way, job }: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let finding = match way {
            Way::Server(_) => by_server(job, site)?,
            Way::Fio | Way::BoundFio => by_fio(way, job, site)?,
        };
        Ok(vec![finding])
    }
}

fn by_server(job: Job, site: &Site) -> io::Result<Finding> {
    let client = Blkio::connect(site.socket(), Waiting::Blocking, job)?;
    let mut load = job.start(client, Disk::Rbd);
    load.run_for(site.time / 4)?;
    let speed = throughput(&site.servers, || load.run_for(site.time).map(f64::from))?;
    let latencies = load.run_timed(site.time / 2)?;
    load.end()?;
    let mut finding = vec![
        (SPEED, speed.iops / 1e3),
        (SERVER, speed.server.cpu_us),
        (ALL, speed.server.cpu_us + speed.client.cpu_us),
        ("server sleeps", speed.server.sleeps),
    ];
    // Of a deep queue of large requests none may both begin and end in a short time.
    if !latencies.is_empty() {
        finding.push((P50, microseconds(&latencies, 0.5)));
        finding.push(("p99 µs", microseconds(&latencies, 0.99)));
    }
    Ok(finding)
}

fn by_fio(way: Way, job: Job, site: &Site) -> io::Result<Finding> {
    let Processors { own, other } = site.processors;
    let both = [own, other];
    let processors = match way {
        Way::BoundFio => &both[1..],
        _ => &both,
    };
    let image = way.image().to_string();
    let conf = site.conf.as_deref().expect("its image was prepared");
    let report = fio::measure(&image, conf, job, site.time, processors, &site.folder)?;
    Ok(vec![
        (SPEED, report.iops / 1e3),
        (ALL, report.cpu_us),
        (P50, report.p50_us),
        ("p99 µs", report.p99_us),
    ])
}
