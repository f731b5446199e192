//! What the control socket tells of: the disks and workers of this process.

use std::sync::Arc;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use pollux::device::Device;
use pollux::disk::{Access, Subscription};
use pollux::stats::{Snapshot, WorkerSnapshot};

use super::model::{
    Count, Counters, Disk, DiskStats, Frontend, Health, Latency, QueueCounters, Status, Worker,
};
use super::new_disk::NewDisk;
use super::opener::Opener;
use crate::serve::{Disks, Look, One};
use crate::stop::Stop;

/// A disk that is served.
pub struct Served {
    /// What it is called.
    pub name: String,
    /// Where frontends connect.
    pub socket: String,
    /// The disk.
    pub device: Arc<Device>,
    /// The group of disks that share its limits.
    pub limit_group: Option<String>,
    /// Knows its frontend.
    pub stop: Arc<Stop>,
    /// As it was added. `None`: the process began with it.
    pub added: Option<NewDisk>,
    /// Was it removed? It is served until it has ended.
    pub removed: bool,
    /// Has those told that listen to events.
    #[expect(dead_code, reason = "held for its drop")]
    pub resizes: Option<Subscription>,
}

/// The process.
pub struct State {
    disks: Arc<Disks>,
    /// Opens those that are added, if any may be.
    opener: Option<Opener>,
    /// Who serves the disks.
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
    pub fn disks(&self) -> Look<'_> {
        self.disks.look()
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

impl Served {
    pub fn disk(&self) -> Disk {
        let geometry = self.device.disk().geometry();
        let options = self.device.options();
        Disk {
            name: self.name.clone(),
            socket: self.socket.clone(),
            serial: options.serial.clone(),
            bytes: geometry.bytes,
            block_size: geometry.block,
            physical_block_size: geometry.physical_block,
            read_only: geometry.access == Access::ReadOnly,
            queues: options.num_queues,
            frontend: self.frontend(),
            limits: self.device.limiter().limits().into(),
            limit_group: self.limit_group.clone(),
            latencies: self.device.observation().is_timed(),
            added: self.added.is_some(),
        }
    }

    /// As it is to be added again: as it was, with the limits that it has now.
    pub fn added(&self) -> Option<NewDisk> {
        let mut added = self.added.clone()?;
        // Those of its group, if it is in one: whichever comes back first says what they are.
        added.limits = self.device.limiter().limits().into();
        added.latencies = self.device.observation().is_timed();
        Some(added)
    }

    pub fn stats(&self) -> DiskStats {
        let queues = self.device.snapshots();
        let total: Snapshot = queues.iter().copied().sum();
        let used = queues.iter().zip(self.device.queue_stats()).enumerate();
        let used = used.filter(|(_, (counted, _))| **counted != Snapshot::default());
        let disk = self.device.disk().counters().into_iter();
        DiskStats {
            name: self.name.clone(),
            total: Counters::from(&total),
            queues: used
                .map(|(queue, (counted, now))| QueueCounters {
                    queue,
                    counters: counted.into(),
                    in_flight: now.in_flight.get(),
                    is_throttled: now.is_throttled.get() > 0,
                    worker: now.worker.get(),
                })
                .collect(),
            disk: disk
                .map(|(name, count)| Count {
                    name: name.to_owned(),
                    count,
                })
                .collect(),
            latencies: self.device.observation().latencies().map(|all| {
                all.iter()
                    .filter_map(|(kind, times)| Latency::of(*kind, times))
                    .collect()
            }),
        }
    }

    fn frontend(&self) -> Option<Frontend> {
        self.stop.frontend().map(|peer| Frontend {
            pid: peer.pid.as_raw_nonzero().get().unsigned_abs(),
            uid: peer.uid.as_raw(),
            gid: peer.gid.as_raw(),
        })
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
