//! What the control socket tells of: the disks and workers of this process.

use std::sync::Arc;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use pollux::stats::WorkerSnapshot;

use super::opener::Opener;
use crate::disks::{DiskList, Disks, One};
use crate::model::{Health, Status, Worker};

/// The process.
pub struct State {
    disks: Arc<Disks>,
    /// Opens those that are added, if any may be.
    opener: Option<Opener>,
    /// They serve the disks.
    workers: Arc<pollux::device::Workers>,
    /// Their threads.
    threads: Vec<u32>,
    /// Their processors, in turn; none were chosen if there are none.
    cpus: Vec<usize>,
    started: Instant,
}

impl State {
    pub fn new(
        disks: Arc<Disks>,
        workers: Arc<pollux::device::Workers>,
        cpus: Vec<usize>,
        opener: Option<Opener>,
    ) -> Self {
        Self {
            disks,
            opener,
            threads: workers.threads(),
            workers,
            cpus,
            started: Instant::now(),
        }
    }

    /// The disks at this moment.
    pub fn disks(&self) -> DiskList<'_> {
        self.disks.list()
    }

    pub fn disk(&self, name: &str) -> Option<One<'_>> {
        self.disks.find(name)
    }

    /// Where they come and go.
    pub fn all(&self) -> &Arc<Disks> {
        &self.disks
    }

    pub fn opener(&self) -> Option<&Opener> {
        self.opener.as_ref()
    }

    /// Has the workers learn of what was changed.
    pub fn wake_workers(&self) {
        self.workers.wake();
    }

    pub fn workers(&self) -> Vec<Worker> {
        let counted = self.workers.snapshots().into_iter();
        let threads = self.threads.iter().zip(counted).enumerate();
        let worker = |(number, (thread, counted)): (usize, (&u32, WorkerSnapshot))| Worker {
            number,
            thread: *thread,
            cpu: (!self.cpus.is_empty()).then(|| self.cpus[number % self.cpus.len()]),
            cpu_ns: cpu_ns(*thread),
            age_ns: counted.age_ns,
            asleep_ns: counted.asleep_ns,
            polling_ns: counted.polling_ns,
            working_ns: counted.working_ns,
            sleeps: counted.sleeps,
            turns: counted.turns,
        };
        threads.map(worker).collect()
    }

    pub fn health(&self) -> Health {
        let disks = self.disks();
        let connected = disks.iter().filter(|disk| disk.frontend().is_some());
        Health {
            status: if disks.ending() {
                Status::Ending
            } else {
                Status::Serving
            },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            disks: disks.len(),
            connected: connected.count(),
            missing: disks.missing(),
        }
    }
}

/// The processor time that a thread of this process has used. Its clock has a number that the kernel makes of the
/// thread's own: `MAKE_THREAD_CPUCLOCK(thread, CPUCLOCK_SCHED)`.
fn cpu_ns(thread: u32) -> Option<u64> {
    const SCHEDULED: i32 = 2;
    const OF_A_THREAD: i32 = 4;
    let thread = i32::try_from(thread).ok()?;
    let clock = ClockId::from_raw((!thread << 3) | OF_A_THREAD | SCHEDULED);
    let used = clock_gettime(clock).ok()?;
    let seconds = u64::try_from(used.tv_sec()).ok()?;
    Some(seconds * 1_000_000_000 + u64::try_from(used.tv_nsec()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_used_time() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let used = || cpu_ns(thread.unsigned_abs()).unwrap();
        let before = used();
        while used() == before {
            std::hint::spin_loop();
        }
        assert_eq!(cpu_ns(u32::MAX), None);
    }
}
