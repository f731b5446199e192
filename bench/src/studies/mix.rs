//! Polled and call-driven requests on one queue: does either kind suffer from the other?

use std::fmt;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use pollux_disk::{Completion as Done, WaitPoint};
use pollux_driver::{Completion, Driver, Hybrid, Mixed, Options, Waiter, Waiting};
use pollux_tests::random::Random;

use super::site::{Setup, Site};
use super::study::{Case, Place, Study, only};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::{Buffers, Job, Lend as _, on_its_way, token};
use crate::load::{Latencies, Offsets, latencies, microseconds, record};
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
    Pure(Completion),
    Both,
}

/// A queue with its requests.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    owners: Owners,
    kinds: Kinds,
    mixed: Mixed,
    depth: u16,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kinds, self.mixed) {
            (Kinds::Pure(Completion::Polled), _) => f.write_str("polled"),
            (Kinds::Pure(Completion::Call), _) => f.write_str("call"),
            (Kinds::Both, Mixed::SuspendedFor(_)) => f.write_str("mix suspended"),
            (Kinds::Both, _) => f.write_str("mix"),
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
        const SUSPENDED: Mixed = Mixed::SuspendedFor(Duration::from_micros(50));
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
                        trial(Kinds::Both, Mixed::WhileNeeded),
                        trial(Kinds::Both, SUSPENDED),
                        trial(Kinds::Pure(Completion::Polled), Mixed::WhileNeeded),
                        trial(Kinds::Pure(Completion::Call), Mixed::WhileNeeded),
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
        let options = Options::default().mixed(trial.mixed);
        let driver = Driver::connect(site.socket(), &options).map_err(io::Error::other)?;
        let [polled, call] = match trial.owners {
            Owners::One => one_owner(&driver, trial, time)?,
            Owners::Two => two_owners(&driver, trial, time)?,
        };
        let kinds = match trial.kinds {
            Kinds::Both => vec![polled, call],
            Kinds::Pure(Completion::Polled) => vec![polled],
            Kinds::Pure(Completion::Call) => vec![call],
        };
        Ok(kinds.iter().map(|all| finding(all, time)).collect())
    }
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn finding(latencies: &Latencies, time: Duration) -> Finding {
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
type Both = [Latencies; 2];

fn one_owner(driver: &Driver, trial: Trial, time: Duration) -> io::Result<Both> {
    let waiters = Waiters::new()?;
    let channel = driver.channel(waiters.point())?;
    let mut owner = Owner::new(driver, channel, waiters, trial.kinds, trial.depth, 1)?;
    owner.run(time)
}

fn two_owners(driver: &Driver, trial: Trial, time: Duration) -> io::Result<Both> {
    let queue = driver.queue(0)?;
    let owner = |own, seed| {
        let kinds = match trial.kinds {
            Kinds::Both => Kinds::Pure(own),
            pure @ Kinds::Pure(_) => pure,
        };
        let waiters = Waiters::new()?;
        let channel = queue.channel(waiters.point())?;
        Owner::new(driver, channel, waiters, kinds, trial.depth / 2, seed)
    };
    let mut polled = owner(Completion::Polled, 1)?;
    let mut call = owner(Completion::Call, 2)?;
    let together = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            together.wait();
            call.run(time)
        });
        together.wait();
        let mut both = polled.run(time)?;
        let others = other.join().expect("a client does not panic")?;
        for (all, others) in both.iter_mut().zip(others) {
            all.add(others).expect("both are as wide");
        }
        Ok(both)
    })
}

/// How one owner waits: while it has polled requests in flight, and else.
struct Waiters {
    polled: Waiter,
    call: Waiter,
}

impl Waiters {
    fn new() -> io::Result<Self> {
        Ok(Self {
            polled: Waiter::new(Waiting::Polled)?,
            call: Waiter::new(Waiting::Call)?,
        })
    }

    /// Where the owner sleeps, if it does.
    fn point(&self) -> &WaitPoint {
        self.call.point()
    }
}

/// One thread with its way into the queue.
struct Owner<C> {
    channel: C,
    waiters: Waiters,
    buffers: Buffers,
    offsets: Offsets,
    random: Random,
    kinds: Kinds,
    /// When each request was queued, and as what.
    in_flight: Vec<Option<(Instant, Completion)>>,
    polled: usize,
    back: Vec<Done>,
}

impl<C: Hybrid> Owner<C> {
    fn new(
        driver: &Driver,
        channel: C,
        waiters: Waiters,
        kinds: Kinds,
        depth: u16,
        seed: u64,
    ) -> io::Result<Self> {
        let job = Job {
            work: Work::RandRead,
            block: BLOCK,
            depth,
        };
        Ok(Self {
            channel,
            waiters,
            buffers: Buffers::new(driver, job)?,
            offsets: Offsets::of(DISK, BLOCK),
            random: Random::new(seed),
            kinds,
            in_flight: vec![None; depth.into()],
            polled: 0,
            back: Vec::with_capacity(depth.into()),
        })
    }

    /// Keeps the queue full for a quarter of `time`, then for `time` in which it is recorded how long each
    /// request takes that is sent, and waits until everything has ended.
    fn run(&mut self, time: Duration) -> io::Result<Both> {
        let mut both = [latencies(), latencies()];
        let start = Instant::now();
        let (begin, end) = (start + time / 4, start + time + time / 4);
        for token in 0..self.in_flight.len() {
            self.queue(token, start)?;
        }
        self.channel.submit();
        loop {
            self.wait()?;
            let now = Instant::now();
            let mut back = std::mem::take(&mut self.back);
            for Done { ticket, result } in back.drain(..) {
                result.map_err(io::Error::other)?;
                let (since, kind) = self.ended(token(ticket));
                if since >= begin {
                    record(
                        now - since,
                        &mut both[usize::from(kind == Completion::Call)],
                    );
                }
                if now < end {
                    self.queue(token(ticket), now)?;
                }
            }
            self.back = back;
            self.channel.submit();
            if self.in_flight.iter().all(Option::is_none) {
                return Ok(both);
            }
        }
    }

    fn queue(&mut self, token: usize, now: Instant) -> io::Result<()> {
        let kind = match self.kinds {
            Kinds::Pure(kind) => kind,
            Kinds::Both if self.random.one_in(2) => Completion::Polled,
            Kinds::Both => Completion::Call,
        };
        self.polled += usize::from(kind == Completion::Polled);
        self.in_flight[token] = Some((now, kind));
        let request = self.buffers.request(token, self.offsets.next());
        on_its_way(self.channel.queue_as(request, kind))
    }

    fn ended(&mut self, token: usize) -> (Instant, Completion) {
        let ended = self.in_flight[token].take();
        let (since, kind) = ended.expect("only what was queued comes back");
        self.polled -= usize::from(kind == Completion::Polled);
        (since, kind)
    }

    fn wait(&mut self) -> io::Result<()> {
        let waiter = if self.polled > 0 {
            &mut self.waiters.polled
        } else {
            &mut self.waiters.call
        };
        let back = &mut self.back;
        waiter.wait(&mut self.channel, None, &mut |done| back.push(done))?;
        Ok(())
    }
}
