//! Is anybody else using the machine?

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use pollux_tests::process::Process;
use rustix::time::{ClockId, clock_gettime};

/// Of a processor, how much others may use (or the host may steal) in an undisturbed measurement.
const TOLERATED: f64 = 0.05;

/// Processor time so far: of everyone, and of those who are meant to use it.
pub struct Usage {
    at: Instant,
    busy: Duration,
    stolen: Duration,
    wanted: Duration,
}

/// What others did meanwhile, as shares of one processor.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Disturbance {
    /// Other processes and the kernel.
    pub others: f64,
    /// The host.
    pub stolen: f64,
}

impl Usage {
    /// The usage now. Whoever may use the machine is this process and `server`.
    pub fn now(server: Option<Process>) -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|text| text.parse().ok())
            .collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = ticks[..] else {
            return Err(io::Error::other(format!("unexpected /proc/stat: {line:?}")));
        };
        let servers = server.map_or(Ok(0), Process::cpu_ns)?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        Ok(Self {
            at: Instant::now(),
            busy: Duration::from_nanos((user + nice + system + irq + softirq) * tick),
            stolen: Duration::from_nanos(stolen * tick),
            wanted: own_cpu() + Duration::from_nanos(servers),
        })
    }

    /// What others did from `self` to `later`.
    pub fn others_until(&self, later: &Self) -> Disturbance {
        let wall = (later.at - self.at).as_secs_f64();
        let busy = later.busy.saturating_sub(self.busy).as_secs_f64();
        let wanted = later.wanted.saturating_sub(self.wanted).as_secs_f64();
        Disturbance {
            others: ((busy - wanted) / wall).max(0.0),
            stolen: later.stolen.saturating_sub(self.stolen).as_secs_f64() / wall,
        }
    }
}

/// Processor time of this process, threads that have ended included.
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a process's time is not negative")
}

impl Disturbance {
    /// Too much for a measurement to count?
    pub fn disturbs(self) -> bool {
        self.others > TOLERATED || self.stolen > TOLERATED
    }
}

/// Waits until the machine is quiet for a fifth of a second; gives up after `patience`.
pub fn wait_for_quiet(patience: Duration) -> io::Result<()> {
    let start = Instant::now();
    while start.elapsed() < patience {
        let before = Usage::now(None)?;
        std::thread::sleep(Duration::from_millis(200));
        let seen = before.others_until(&Usage::now(None)?);
        // Few ticks fit into this time: one of them may be anybody's.
        if seen.others <= 2.0 * TOLERATED && seen.stolen <= 2.0 * TOLERATED {
            break;
        }
    }
    Ok(())
}
