//! Is anybody else using the machine?

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use pollux_tests::process::Process;
use rustix::time::{ClockId, clock_gettime};

/// Of a processor, how much others may use (or the host may steal) in an undisturbed measurement.
const TOLERATED: f64 = 0.05;

/// Processor time so far: of all, and of those that belong to a measurement.
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
    /// The usage now. To a measurement belong this process, those that it has started and seen end, and `daemons`.
    pub fn now(daemons: &[Process]) -> io::Result<Self> {
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
        let daemons = daemons.iter().map(|daemon| daemon.cpu_ns());
        let daemons = daemons.sum::<io::Result<u64>>()?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        Ok(Self {
            at: Instant::now(),
            busy: Duration::from_nanos((user + nice + system + irq + softirq) * tick),
            stolen: Duration::from_nanos(stolen * tick),
            wanted: own_cpu() + Duration::from_nanos(ticks_of_children()? * tick + daemons),
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

/// Processor time of the processes that this one has started and seen end.
fn ticks_of_children() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may hold anything; the state is the first field after it, `cutime` the fourteenth.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: Option<Vec<u64>> = ticks.map(|text| text.parse().ok()).collect();
    match ticks.as_deref() {
        Some([user, system]) => Ok(user + system),
        _ => Err(io::Error::other(format!(
            "unexpected /proc/self/stat: {stat:?}"
        ))),
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

/// Waits until the machine is quiet for a fifth of a second; gives up after `patience`, but looks once.
pub fn wait_for_quiet(patience: Duration) -> io::Result<()> {
    let start = Instant::now();
    loop {
        let before = Usage::now(&[])?;
        std::thread::sleep(Duration::from_millis(200));
        let seen = before.others_until(&Usage::now(&[])?);
        // Few ticks fit into this time: one of them may be anybody's.
        let quiet = seen.others <= 2.0 * TOLERATED && seen.stolen <= 2.0 * TOLERATED;
        if quiet || start.elapsed() >= patience {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_of_the_measurement_uses_is_not_of_others() {
        let own = Process::new(std::process::id());
        let used = Duration::from_nanos(own.cpu_ns().unwrap());
        let alone = Usage::now(&[]).unwrap();
        let with_daemon = Usage::now(&[own]).unwrap();
        assert!(with_daemon.wanted >= alone.wanted + used);
    }
}
