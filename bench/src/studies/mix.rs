//! Polled and call-driven requests on one queue: does either kind suffer from the other?

use std::fmt;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pollux_disk::WaitPoint;
use pollux_driver::{CompletionMode, Driver, Experiment, Hybrid, Mixed as Policy, Options};
use pollux_load::{Histogram, Mixed, Plan, Split, Waits, microseconds};

use super::site::{Setup, Site};
use super::study::{Case, Place, Study, only};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::Job;
use crate::results::findings::Finding;

/// The study.
pub struct Mix;

const DISK: Disk = Disk::Memory;

/// Who has the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owners {
    /// One owner without a lock; the kind of each request is drawn.
    One,
    /// Two threads that share it, each with a kind of its own and half of the requests.
    Two,
}

/// Which requests there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    Pure(CompletionMode),
    Both,
}

/// A queue with its requests.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    owners: Owners,
    kinds: Kinds,
    mixed: Policy,
    depth: u16,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kinds, self.mixed) {
            (Kinds::Pure(CompletionMode::Polled), _) => f.write_str("polled"),
            (Kinds::Pure(_), _) => f.write_str("call"),
            (Kinds::Both, Policy::SuspendedFor(_)) => f.write_str("mix suspended"),
            (Kinds::Both, Policy::WhileNeeded) => f.write_str("mix"),
        }
    }
}

impl Study for Mix {
    type Trial = Trial;

    const TITLE: &'static str = "Polled and call-driven requests on one queue";
    const EXPLANATION: &'static str = "\
Each kind among both, beside a run of that kind alone at the same total depth, as *one / other*. *one* owner draws the
kind of each request, polls while it has a polled one in flight, and sleeps else; *two* threads share the queue, one
polling and one sleeping, both on the client's processor. `suspended` is the policy by which calls are off while polled
requests are in flight, for at most 50 µs. The clock is read once for each batch.
";
    const RATIOS: &'static [&'static str] = &["p99 µs"];
    const SHARE_OF_RUNTIME: f64 = 0.3;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        const SUSPENDED: Policy = Policy::SuspendedFor(Duration::from_micros(50));
        let mut cases = vec![];
        for (owners, name) in [(Owners::One, "one"), (Owners::Two, "two")] {
            for depth in [2, 16, 32] {
                let trial = |kinds, mixed| Trial {
                    owners,
                    kinds,
                    mixed,
                    depth,
                };
                let of = |trial, finding| Place { trial, finding };
                cases.push(Case {
                    name: format!("{name}/{depth}"),
                    trials: vec![
                        trial(Kinds::Both, Policy::WhileNeeded),
                        trial(Kinds::Both, SUSPENDED),
                        trial(Kinds::Pure(CompletionMode::Polled), Policy::WhileNeeded),
                        trial(Kinds::Pure(CompletionMode::Call), Policy::WhileNeeded),
                    ],
                    rows: vec![
                        ("polled", [of(0, 0), only(2)]),
                        ("call", [of(0, 1), only(3)]),
                        ("suspended/polled", [of(1, 0), only(2)]),
                        ("suspended/call", [of(1, 1), only(3)]),
                    ],
                });
            }
        }
        cases
    }

    fn setup(_: Trial) -> Setup {
        Setup::ours(DISK)
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let time = site.time;
        let options = Options::default().experiment(Experiment {
            mixed: trial.mixed,
            ..Experiment::default()
        });
        let driver = Driver::connect(site.socket(), &options).map_err(io::Error::other)?;
        let [polled, call] = match trial.owners {
            Owners::One => one_owner(&driver, trial, time)?,
            Owners::Two => two_owners(&driver, trial, time)?,
        };
        let kinds = match trial.kinds {
            Kinds::Both => vec![polled, call],
            Kinds::Pure(CompletionMode::Polled) => vec![polled],
            Kinds::Pure(_) => vec![call],
        };
        Ok(kinds.iter().map(|all| finding(all, time)).collect())
    }
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn finding(latencies: &Histogram, time: Duration) -> Finding {
    // Where nothing was sent in all that time, what was sent before took at least as long.
    let time_of = |quantile| {
        if latencies.is_empty() {
            time.as_secs_f64() * 1e6
        } else {
            microseconds(latencies, quantile)
        }
    };
    vec![
        ("k IOPS", latencies.len() as f64 / time.as_secs_f64() / 1e3),
        ("p50 µs", time_of(0.5)),
        ("p99 µs", time_of(0.99)),
    ]
}

/// Of polled requests, and of call-driven ones.
type Both = [Histogram; 2];

fn one_owner(driver: &Driver, trial: Trial, time: Duration) -> io::Result<Both> {
    let open = |point: &WaitPoint| driver.channel(point);
    run(&mut owner(driver, open, trial.kinds, trial.depth, 1)?, time)
}

fn two_owners(driver: &Driver, trial: Trial, time: Duration) -> io::Result<Both> {
    let queue = driver.queue(0)?;
    let of_kind = |own, seed| {
        let kinds = match trial.kinds {
            Kinds::Both => Kinds::Pure(own),
            pure @ Kinds::Pure(_) => pure,
        };
        let open = |point: &WaitPoint| queue.channel(point);
        owner(driver, open, kinds, trial.depth / 2, seed)
    };
    let mut polled = of_kind(CompletionMode::Polled, 1)?;
    let mut call = of_kind(CompletionMode::Call, 2)?;
    let together = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            together.wait();
            run(&mut call, time)
        });
        together.wait();
        let mut both = run(&mut polled, time)?;
        let others = other.join().expect("a client does not panic")?;
        for (all, others) in both.iter_mut().zip(others) {
            all.add(others).expect("both are as wide");
        }
        Ok(both)
    })
}

/// One thread with its way into the queue.
fn owner<C: Hybrid>(
    driver: &Driver,
    open: impl FnOnce(&WaitPoint) -> io::Result<C>,
    kinds: Kinds,
    depth: u16,
    seed: u64,
) -> io::Result<pollux_load::Job<Mixed<C>>> {
    let job = Job {
        work: Work::RandRead,
        block: BLOCK,
        depth,
    };
    let polled = match kinds {
        Kinds::Pure(CompletionMode::Polled) => 100,
        Kinds::Pure(_) => 0,
        Kinds::Both => 50,
    };
    let pattern = job.pattern(DISK, seed).polled(polled);
    let client = Mixed::new(Waits::Each, job.buffers(driver)?, open)?;
    pollux_load::Job::new(Plan::new(pattern, depth.into(), BLOCK), client)
}

/// Keeps the queue full for a quarter of `time`, then for `time` in which it is recorded how long each request takes.
fn run<C: Hybrid>(owner: &mut pollux_load::Job<Mixed<C>>, time: Duration) -> io::Result<Both> {
    owner.run_for(time / 4)?;
    owner.run_for(time)?;
    let Split { polled, called, .. } = owner.measured.latencies.read.clone();
    Ok([polled, called])
}
