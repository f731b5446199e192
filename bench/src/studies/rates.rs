//! Few requests a second: does looking for completions cost what it must not?

use std::fmt;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pollux_disk::Channel as _;
use pollux_driver::{Channel, Driver, Options, Waiter, Waiting};

use super::{Case, Finding, Study, only};
use crate::cell::{BLOCK, Disk, Work};
use crate::client::{Buffers, Client, Job, on_its_way, token};
use crate::load::{Latencies, Offsets, latencies, microseconds, record};
use crate::measure::Spent;

/// The study.
pub struct Rates;

/// So many requests a second, waited for in this way.
#[derive(Clone, Copy)]
pub struct Trial {
    rate: u32,
    waiting: Waiting,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Client::Driver(self.waiting).waiting())
    }
}

impl Study for Rates {
    type Trial = Trial;

    const TITLE: &'static str = "The driver at low rates";
    const EXPLANATION: &'static str = "\
`adaptive` beside `call`, as *one / other*: requests arrive at fixed times, whether or not those before them have ended (an open\n\
loop), and the client sleeps until the next is due. Latencies count from the time that a request was due. Processor time is all\n\
of the client's thread, its timer included.\n";
    const OPTIONS: &'static [&'static str] = &[];
    const DISK: Disk = Disk::Null;
    const RATIOS: &'static [&'static str] = &["client µs"];
    const SHARE_OF_RUNTIME: f64 = 1.5;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let case = |rate| Case {
            name: format!("rate/{rate}"),
            trials: [Waiting::Adaptive, Waiting::Call]
                .map(|waiting| Trial { rate, waiting })
                .into(),
            rows: vec![("adaptive:call", [only(0), only(1)])],
        };
        [100, 1000].map(case).into()
    }

    fn run(trial: Trial, socket: &Path, time: Duration) -> io::Result<Vec<Finding>> {
        let mut client = OpenLoop::connect(socket, trial)?;
        client.run_for(time / 4)?;
        client.latencies.reset();
        let before = Spent::by_this_thread()?;
        client.run_for(time)?;
        let requests = client.latencies.len();
        let each = before.until(&Spent::by_this_thread()?, count(requests));
        Ok(vec![vec![
            ("client µs", each.cpu_us),
            ("client sleeps", each.sleeps),
            ("p50 µs", microseconds(&client.latencies, 0.5)),
            ("p99 µs", microseconds(&client.latencies, 0.99)),
        ]])
    }
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
const fn count(requests: u64) -> f64 {
    requests as f64
}

/// A client that sends each request when it is due.
struct OpenLoop {
    channel: Channel,
    waiter: Waiter,
    buffers: Buffers,
    offsets: Offsets,
    /// Between two requests.
    period: Duration,
    /// When each request in flight was due.
    due: Vec<Option<Instant>>,
    latencies: Latencies,
}

/// The most requests in flight: what is due beyond waits.
const MOST: u16 = 64;

impl OpenLoop {
    fn connect(socket: &Path, Trial { rate, waiting }: Trial) -> io::Result<Self> {
        let driver = Driver::connect(socket, &Options::default()).map_err(io::Error::other)?;
        let waiter = Waiter::new(waiting)?;
        let job = Job {
            work: Work::RandRead,
            block: BLOCK,
            depth: MOST,
        };
        Ok(Self {
            channel: driver.channel(waiter.point())?,
            waiter,
            buffers: Buffers::new(&driver, job)?,
            offsets: Offsets::of(Rates::DISK, BLOCK),
            period: Duration::from_secs(1) / rate,
            due: vec![None; MOST.into()],
            latencies: latencies(),
        })
    }

    /// Sends requests for `time`, and waits until all have ended.
    fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        let mut due = start;
        while due < start + time {
            self.wait_until(due)?;
            let free = loop {
                match self.due.iter().position(Option::is_none) {
                    Some(free) => break free,
                    None => self.reap(None)?,
                }
            };
            self.due[free] = Some(due);
            let request = self.buffers.request(free, self.offsets.next());
            on_its_way(self.channel.queue(request))?;
            self.channel.submit();
            due += self.period;
        }
        while self.is_busy() {
            self.reap(None)?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.due.iter().any(Option::is_some)
    }

    /// Sleeps, or waits for what is in flight, until `due`.
    fn wait_until(&mut self, due: Instant) -> io::Result<()> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.is_busy() {
                self.reap(Some(left))?;
            } else {
                thread::sleep(left);
            }
        }
    }

    /// Waits for at least one request.
    fn reap(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let Self { due, latencies, .. } = self;
        let mut failure = None;
        self.waiter.wait(&mut self.channel, timeout, &mut |done| {
            failure = failure.or(done.result.err());
            if let Some(due) = due[token(done.ticket)].take() {
                record(due.elapsed(), latencies);
            }
        })?;
        failure.map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}
