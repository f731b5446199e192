//! What requests cost: processor time and sleeps of either side, which the kernel counts anyway.

use std::io;
use std::time::{Duration, Instant};

use pollux_tests::process::Process;
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What the first phase finds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throughput {
    /// Requests a second.
    pub iops: f64,
    /// Of the server, for each request.
    pub server: Cost,
    /// Of the client, for each request.
    pub client: Cost,
}

/// What one side spends on a request.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Processor time in microseconds.
    pub cpu_us: f64,
    /// How often it goes to sleep.
    pub sleeps: f64,
}

/// What the kernel counts anyway, for one side.
pub struct Spent {
    cpu: Duration,
    sleeps: u64,
}

impl Spent {
    /// By all threads of the servers so far.
    pub fn by_servers(servers: &[Process]) -> io::Result<Self> {
        let (mut cpu, mut sleeps) = (Duration::ZERO, 0);
        for server in servers {
            cpu += Duration::from_nanos(server.cpu_ns()?);
            sleeps += server.sleeps()?.values().sum::<u64>();
        }
        Ok(Self { cpu, sleeps })
    }

    /// By the calling thread so far.
    pub fn by_this_thread() -> io::Result<Self> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Ok(Self {
            cpu: Duration::try_from(time).expect("a thread's time is not negative"),
            sleeps: Process::new(std::process::id()).sleeps_of(thread_id())?,
        })
    }

    /// The difference, for each of `requests`. A thread that has ended takes its share with it.
    #[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
    pub fn until(&self, later: &Self, requests: f64) -> Cost {
        Cost {
            cpu_us: later.cpu.saturating_sub(self.cpu).as_secs_f64() * 1e6 / requests,
            sleeps: later.sleeps.saturating_sub(self.sleeps) as f64 / requests,
        }
    }
}

pub(super) fn thread_id() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

/// What `run` costs this thread and the `servers`; it says how many requests it has made.
pub fn throughput(
    servers: &[Process],
    run: impl FnOnce() -> io::Result<f64>,
) -> io::Result<Throughput> {
    let server = Spent::by_servers(servers)?;
    let client = Spent::by_this_thread()?;
    let start = Instant::now();
    let requests = run()?;
    let elapsed = start.elapsed();
    let client = client.until(&Spent::by_this_thread()?, requests);
    let server = server.until(&Spent::by_servers(servers)?, requests);
    Ok(Throughput {
        iops: requests / elapsed.as_secs_f64(),
        server,
        client,
    })
}
