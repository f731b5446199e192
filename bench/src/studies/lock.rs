//! A queue that threads share: what does it bring to kick after its lock is released?

use std::fmt;
use std::io;
use std::thread;
use std::time::Instant;

use pollux_driver::{CompletionMode, Driver, Experiment, KickLock, Options, Queue};

use super::site::{Setup, Site};
use super::study::{Case, Study, count, only};
use crate::cell::{BLOCK, Disk};
use crate::quiet::own_cpu;
use crate::results::findings::Finding;
use pollux_load::{Histogram, microseconds};

/// The study.
pub struct Lock;

const DISK: Disk = Disk::Null;

/// When to kick, and whether the lock is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    kick: KickLock,
    recorded: bool,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kick {
            KickLock::Released => "released",
            KickLock::Held => "held",
        })?;
        f.write_str(if self.recorded { ", recorded" } else { "" })
    }
}

/// Threads that share the queue, each with one request at a time.
const THREADS: u64 = 8;

impl Study for Lock {
    type Trial = Trial;

    const TITLE: &'static str = "Kicks and the lock of a shared queue";
    const EXPLANATION: &'static str = "\
Eight threads read through one queue, each one request at a time that it sleeps over; they run on all processors, the
server on its own. It sleeps whenever it has nothing to do and takes kicks between turns (`--poll never --kicks
per-turn`). *one / other* are kicks after the lock was released and while it is held; in the last row, a recorded lock
and one that is not. Hold and wait are of one taking, the total wait of one request; takings during which the thread
was preempted are told apart, and in none of these.
";
    const RATIOS: &'static [&'static str] =
        &["hold p99.9 µs", "total wait µs", "k IOPS", "client µs"];
    const SHARE_OF_RUNTIME: f64 = 1.0;
    const PINNED: bool = false;

    fn cases() -> Vec<Case<Trial>> {
        use KickLock::{Held, Released};
        let trial = |kick, recorded| Trial { kick, recorded };
        vec![Case {
            name: "lock".into(),
            trials: vec![
                trial(Released, true),
                trial(Held, true),
                trial(Released, false),
                trial(Held, false),
            ],
            rows: vec![
                ("released:held, recorded", [only(0), only(1)]),
                ("released:held", [only(2), only(3)]),
                ("released, recorded:not", [only(0), only(2)]),
            ],
        }]
    }

    fn setup(_: Trial) -> Setup {
        Setup {
            options: &["--poll", "never", "--kicks", "per-turn"],
            ..Setup::ours(DISK)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let options = Options::default().experiment(Experiment {
            kick_lock: trial.kick,
            record_lock: trial.recorded,
            ..Experiment::default()
        });
        let driver = Driver::connect(site.socket(), &options).map_err(io::Error::other)?;
        let queue = driver.queue(0)?;
        let (cpu, start) = (own_cpu(), Instant::now());
        let requests = count(all_threads(&driver, &queue, start + site.time)?);
        let elapsed = start.elapsed();
        let cpu_us = own_cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
        let counters = queue.counters();
        let mut finding = vec![
            ("k IOPS", requests / elapsed.as_secs_f64() / 1e3),
            ("client µs", cpu_us / requests),
            ("kicks", count(counters.kicks) / requests),
        ];
        if let Some(times) = queue.lock_times() {
            let takings = count(times.hold.len() + times.preempted);
            finding.extend([
                ("under lock", count(counters.kicks_under_lock) / requests),
                ("takings", takings / requests),
                ("hold p50 µs", microseconds(&times.hold, 0.5)),
                ("hold p99.9 µs", microseconds(&times.hold, 0.999)),
                ("wait p99.9 µs", microseconds(&times.wait, 0.999)),
                ("total wait µs", total_ns(&times.wait) / 1e3 / requests),
                ("preempted", count(times.preempted) / takings),
            ]);
        }
        Ok(vec![finding])
    }
}

fn total_ns(times: &Histogram) -> f64 {
    times.mean() * count(times.len())
}

/// How many requests all threads have made.
fn all_threads(driver: &Driver, queue: &Queue, end: Instant) -> io::Result<u64> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || one_thread(driver, queue, seed, end)))
            .collect();
        let counts = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client does not panic"));
        counts.sum()
    })
}

fn one_thread(driver: &Driver, queue: &Queue, seed: u64, end: Instant) -> io::Result<u64> {
    let mut buffer = driver.allocate(BLOCK)?;
    let blocks = DISK.size() / BLOCK as u64;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut requests = 0;
    while Instant::now() < end {
        let pending = queue.read(
            random.u64(..blocks) * BLOCK as u64,
            buffer,
            CompletionMode::Call,
        );
        buffer = pending.wait().map_err(io::Error::other)?;
        requests += 1;
    }
    Ok(requests)
}
