//! Another thread on the server's processor: does a server that polls leave the processor to it?

use std::fmt;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pollux_driver::Waiting;
use pollux_tests::process::Process;
use rustix::thread::{Pid, sched_getaffinity, sched_setaffinity};

use super::curve::{self, Mode};
use super::open_loop;
use super::site::{Setup, Site};
use super::study::{Case, Study, only};
use crate::cell::Disk;
use crate::measure::Spent;
use crate::results::findings::Finding;

/// The study.
pub struct Neighbour;

const DISK: Disk = Disk::Null;

/// So many requests a second to a server that polls in this way.
#[derive(Clone, Copy)]
pub struct Trial {
    rate: u32,
    mode: Mode,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mode.fmt(f)
    }
}

impl Study for Neighbour {
    type Trial = Trial;

    const TITLE: &'static str = "Somebody else on the server's processor";
    const EXPLANATION: &'static str = "\
An open loop of 4 KiB reads of *null* by our driver, polled, on a processor of its own; on the server's there is a
thread that computes without end. *neighbour CPU %* is what that gets of the processor; *one / other*. A server that
polls on while another thread wants its processor takes half of it, and answers late, as it waits for its turn like any
other thread; one that sleeps runs when it is woken.
";
    const RATIOS: &'static [&'static str] = &[ITS_CPU, "p50 µs", "p99 µs"];
    const SHARE_OF_RUNTIME: f64 = 3.0;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let case = |rate| Case {
            name: format!("neighbour/{rate}"),
            trials: Mode::ALL.map(|mode| Trial { rate, mode }).into(),
            rows: vec![
                ("adaptive:never", [only(0), only(2)]),
                ("adaptive:always", [only(0), only(1)]),
            ],
        };
        [1000, 10_000, 50_000].map(case).into()
    }

    fn setup(trial: Trial) -> Setup {
        Setup {
            options: trial.mode.options(),
            ..Setup::ours(DISK)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let (socket, rate) = (site.socket(), trial.rate);
        let mut client = open_loop::connect(socket, DISK, Waiting::Polled, rate, Duration::ZERO)?;
        let over = AtomicBool::new(false);
        let (introduction, who) = mpsc::channel();
        thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                let began = beside(site.server());
                let _ = introduction.send(());
                drop(introduction);
                began?;
                compute(&over)
            });
            let _ = who.recv(); // its error is told below
            let found = curve::measure(&mut client, site);
            over.store(true, Ordering::Relaxed);
            let got = neighbour.join().expect("it does not panic")?;
            let mut found = found?;
            found.insert(0, (ITS_CPU, 100.0 * got));
            Ok(vec![found])
        })
    }
}

const ITS_CPU: &str = "neighbour CPU %";

/// Binds the calling thread to where `server` runs.
fn beside(server: Process) -> io::Result<()> {
    let id = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    sched_setaffinity(None, &sched_getaffinity(id)?)?;
    Ok(())
}

/// Until it is `over`. Which share of the time was it let?
fn compute(over: &AtomicBool) -> io::Result<f64> {
    let (before, began) = (Spent::by_this_thread()?, Instant::now());
    while !over.load(Ordering::Relaxed) {
        (0..1000).for_each(|_| hint::spin_loop());
    }
    let spent = before.until(&Spent::by_this_thread()?, 1.0);
    Ok(spent.cpu_us / 1e6 / began.elapsed().as_secs_f64())
}
