//! Processor time: of the jobs, which are threads of ours, and of the server, whose threads are watched
//! from outside.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// What a thread of ours has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of it, exactly.
    pub total: Duration,
    /// Of that, in the program and in the kernel, as far as the kernel tells them apart.
    pub user: Duration,
    pub system: Duration,
    /// How often it gave the processor away, or lost it.
    pub switches: u64,
}

impl Usage {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        let total = clock_gettime(ClockId::ThreadCPUTime);
        let used = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread may ask for its own usage");
        let time = |time: TimeVal| {
            let us = u64::try_from(time.num_microseconds()).unwrap_or_default();
            Duration::from_micros(us)
        };
        let switches = used.voluntary_context_switches() + used.involuntary_context_switches();
        Self {
            total: Duration::try_from(total).unwrap_or_default(),
            user: time(used.user_time()),
            system: time(used.system_time()),
            switches: u64::try_from(switches).unwrap_or_default(),
        }
    }

    /// What was used since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            total: self.total.saturating_sub(before.total),
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            switches: self.switches.saturating_sub(before.switches),
        }
    }

    /// Adds what another thread has used.
    pub fn add(&mut self, other: Self) {
        self.total += other.total;
        self.user += other.user;
        self.system += other.system;
        self.switches += other.switches;
    }
}

/// User and system time of a task, by its `stat`.
fn ticks(task: &Path) -> Option<Duration> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // The name may hold anything, a parenthesis too. Behind it: state, and the 11th after is `utime`.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    let ticks: u64 = times.map(str::parse::<u64>).sum::<Result<_, _>>().ok()?;
    let second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos(ticks * (1_000_000_000 / second)))
}

/// The threads that serve.
#[derive(Clone, Debug)]
pub enum Server {
    /// Those of this process that belong to the device and its disk, where all of these are ours.
    Inside,
    /// All of another process.
    Process(u32),
}

/// What each thread of a server has used so far.
#[derive(Debug)]
pub struct Snapshot(HashMap<PathBuf, Duration>);

/// How the threads of a device and of its disk are called: workers, the pool of files, and the kernel's
/// own for `io_uring`.
const SERVING: [&str; 3] = ["worker-", "pollux-file", "iou-"];

impl Server {
    /// `None` where the kernel does not tell: it is another user's process, or not in our `/proc`.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (folder, names) = match self {
            Self::Inside => (PathBuf::from("/proc/self/task"), &SERVING[..]),
            Self::Process(id) => (PathBuf::from(format!("/proc/{id}/task")), &[""][..]),
        };
        let tasks = fs::read_dir(folder).ok()?.flatten().map(|task| task.path());
        let serves = |task: &PathBuf| {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            names.iter().any(|begin| name.starts_with(begin))
        };
        let times: HashMap<_, _> = tasks
            .filter(serves)
            .filter_map(|task| on_cpu(&task).map(|time| (task, time)))
            .collect();
        (!times.is_empty()).then_some(Snapshot(times))
    }
}

/// Time on a processor, in nanoseconds where the kernel keeps them, else in ticks.
fn on_cpu(task: &Path) -> Option<Duration> {
    let exact = fs::read_to_string(task.join("schedstat")).ok();
    let exact = exact.and_then(|text| text.split(' ').next()?.parse().ok());
    exact.map(Duration::from_nanos).or_else(|| ticks(task))
}

impl Snapshot {
    /// What was used since `before`, new threads included.
    pub fn since(&self, before: &Self) -> Duration {
        let used = self.0.iter().map(|(task, &now)| {
            let then = before.0.get(task).copied().unwrap_or_default();
            now.saturating_sub(then)
        });
        used.sum()
    }
}

/// Pins the calling thread to `cpu`.
pub fn pin(cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(format!("--cpus: there is no CPU {cpu}"));
    }
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("--cpus: cannot run on CPU {cpu}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_what_it_has_used() {
        let before = Usage::of_this_thread();
        while Usage::of_this_thread().since(before).total < Duration::from_millis(1) {}
        let after = Usage::of_this_thread();
        assert!(after.total > before.total);
    }

    #[test]
    fn the_threads_of_a_process_are_found_and_those_of_nobody_are_not() {
        let own = Server::Process(std::process::id()).snapshot().unwrap();
        assert_eq!(own.since(&own), Duration::ZERO);
        assert!(Server::Process(u32::MAX).snapshot().is_none());
        assert!(ticks(Path::new("/proc/thread-self")).is_some());
    }
}
