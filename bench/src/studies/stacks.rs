//! Stacked disks over queues of our driver: does polling them precisely pay, at any depth, and what does the layer
//! cost?

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pollux_disk::{Disk as _, PollScope, Request, Stack, linear, striped};
use pollux_driver::{Driver, Options, Waiter, Waiting};
use pollux_load::{Ask, Buffers, Closed, Lend, Order, Own, Pattern};
use pollux_memory::Span;

use super::site::{Setup, Site};
use super::study::{Case, Study, only};
use crate::cell::{BLOCK, Disk};
use crate::client;
use crate::contender::Exports;
use crate::measure::Spent;
use crate::results::findings::Finding;
use crate::stripe::Stacked;

/// The study.
pub struct Stacks;

/// How legs become a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Requests of 4 KiB, each on one leg.
    Linear,
    /// Requests of 12 KiB in chunks of 4 KiB: three sub-requests each.
    Striped,
    /// Requests of 4 KiB, all on one of the legs of a linear disk.
    OneLeg,
}

/// One client of a stacked disk.
#[derive(Clone, Copy)]
pub struct Trial {
    shape: Shape,
    legs: usize,
    depth: u16,
    waiting: Waiting,
    scope: PollScope,
}

const CHUNK: u64 = BLOCK as u64;

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            PollScope::OwnInFlight => "",
            PollScope::EveryQueue => " every-queue",
        };
        let waiting = client::Client::Driver(self.waiting).waiting();
        write!(f, "{waiting}{scope} at {}", self.depth)
    }
}

impl Trial {
    fn new(shape: Shape, depth: u16, waiting: Waiting) -> Self {
        Self {
            shape,
            legs: 3,
            depth,
            waiting,
            scope: PollScope::OwnInFlight,
        }
    }

    fn block(self) -> usize {
        match self.shape {
            Shape::Linear | Shape::OneLeg => BLOCK,
            Shape::Striped => 3 * BLOCK,
        }
    }
}

impl Study for Stacks {
    type Trial = Trial;

    const TITLE: &'static str = "Stacked disks over queues of the driver";
    const EXPLANATION: &'static str = "\
One thread and one channel of a stacked disk, whose legs are queues of our driver to one server, each its own (three,
or sixteen of which one is used); *one / other*. `linear` has requests of 4 KiB, `striped` of 12 KiB in chunks of 4
KiB. `call` sleeps, as a driver of interrupts does. `512:128` compares a polling client with as many in flight;
`own:every` one that polls the legs with requests of its own with one that polls all. Polls are those of a leg, for
each request.
";
    const RATIOS: &'static [&'static str] = &["k IOPS", "client µs"];
    const SHARE_OF_RUNTIME: f64 = 0.5;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let of = |shape| match shape {
            Shape::Linear => "linear",
            Shape::Striped => "striped",
            Shape::OneLeg => "one-of-16",
        };
        let mut cases = vec![];
        for shape in [Shape::Linear, Shape::Striped] {
            for depth in [1, 4] {
                let [polled, call] = [Waiting::Polled, Waiting::Call]
                    .map(|waiting| Trial::new(shape, depth, waiting));
                cases.push(Case {
                    name: format!("stack/{}/{depth}", of(shape)),
                    trials: vec![polled, call],
                    rows: vec![("polled:call", [only(0), only(1)])],
                });
            }
            cases.push(Case {
                name: format!("stack/{}/polled", of(shape)),
                trials: [512, 128]
                    .map(|depth| Trial::new(shape, depth, Waiting::Polled))
                    .into(),
                rows: vec![("512:128", [only(0), only(1)])],
            });
        }
        let scoped = |scope| Trial {
            legs: 16,
            scope,
            ..Trial::new(Shape::OneLeg, 1, Waiting::Polled)
        };
        cases.push(Case {
            name: format!("stack/{}/1", of(Shape::OneLeg)),
            trials: [PollScope::OwnInFlight, PollScope::EveryQueue]
                .map(scoped)
                .into(),
            rows: vec![("own:every", [only(0), only(1)])],
        });
        cases
    }

    fn setup(trial: Trial) -> Setup {
        let queues = u16::try_from(trial.legs).expect("sixteen at most");
        Setup {
            exports: Exports {
                queues,
                ..Exports::one(Disk::Null)
            },
            ..Setup::ours(Disk::Null)
        }
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let time = site.time;
        let mut client = Client::connect(site.socket(), trial)?;
        client.load.run_for(time / 4)?;
        let (before, polls) = (Spent::by_this_thread()?, client.polls());
        let began = Instant::now();
        let requests = f64::from(client.load.run_for(time)?);
        let seconds = began.elapsed().as_secs_f64();
        let each = before.until(&Spent::by_this_thread()?, requests);
        let [all, empty] = [0, 1].map(|at| (client.polls()[at] - polls[at]) / requests);
        client.load.end()?;
        Ok(vec![vec![
            ("k IOPS", requests / seconds / 1000.0),
            ("client µs", each.cpu_us),
            ("polls", all),
            ("empty", empty),
        ]])
    }
}

/// A client that keeps requests in flight on a stacked disk.
struct Client {
    load: Closed<Own<Stacked, From>>,
    stack: Arc<Stack>,
}

/// Buffers of requests that all lie behind an offset.
struct From {
    base: u64,
    buffers: Buffers,
}

impl Lend for From {
    #[inline]
    fn request(&self, slot: usize, ask: Ask) -> Request {
        let offset = self.base + ask.offset;
        self.buffers.request(slot, Ask { offset, ..ask })
    }

    fn span(&self, slot: usize) -> Span {
        self.buffers.span(slot)
    }
}

impl Client {
    fn connect(socket: &Path, trial: Trial) -> io::Result<Self> {
        let options = Options::default().queue_size(1024);
        let driver = Driver::connect(socket, &options).map_err(io::Error::other)?;
        let legs = (0..trial.legs).map(|_| Arc::new(driver.clone()) as _);
        let legs: Vec<Arc<dyn pollux_disk::Disk>> = legs.collect();
        let stack = match trial.shape {
            Shape::Linear | Shape::OneLeg => linear(legs, trial.scope),
            Shape::Striped => striped(CHUNK, legs, trial.scope),
        };
        let stack = Arc::new(stack.map_err(io::Error::other)?);
        let leg = driver.geometry().bytes;
        let (bytes, base) = match trial.shape {
            Shape::OneLeg => (leg, 3 * leg),
            _ => (stack.geometry().bytes, 0),
        };
        let (depth, block) = (usize::from(trial.depth), trial.block());
        let blocks = usize::try_from(bytes / block as u64).expect("64 bits");
        let waiter = Waiter::new(trial.waiting)?;
        let buffers = Buffers::new(&driver, depth, block)?;
        let channel = Stacked::open(&stack, &waiter)?;
        let client = Own::new(channel, waiter, From { base, buffers });
        let pattern = Pattern::new(Order::Random(1), blocks);
        let mut load = Closed::new(client, pattern, depth, block);
        load.begin();
        Ok(Self { load, stack })
    }

    /// Polls of legs, and the empty ones, so far.
    #[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
    fn polls(&self) -> [f64; 2] {
        let counters = self.stack.counters();
        ["polls of legs", "empty polls of legs"].map(|name| {
            let found = counters.iter().find(|(known, _)| *known == name);
            found.map_or(f64::NAN, |(_, count)| *count as f64)
        })
    }
}
