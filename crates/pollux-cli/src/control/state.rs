//! What the control socket tells of: the disks and workers of this process.

use std::sync::Arc;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use pollux::device::Device;
use pollux::disk::Access;
use pollux::stats::{Snapshot, WorkerSnapshot};

use super::model::{
    Count, Counters, Disk, DiskStats, Frontend, Health, Latency, QueueCounters, Status, Worker,
};
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
}

/// The process.
pub struct State {
    disks: Vec<Served>,
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
        disks: Vec<Served>,
        workers: Arc<pollux::device::Workers>,
        cpus: Vec<usize>,
    ) -> Self {
        Self {
            disks,
            threads: workers.threads(),
            workers,
            cpus,
            started: Instant::now(),
        }
    }

    pub fn disks(&self) -> &[Served] {
        &self.disks
    }

    pub fn disk(&self, name: &str) -> Option<&Served> {
        self.disks.iter().find(|disk| disk.name == name)
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
        let ending = self.disks.iter().any(|disk| disk.stop.stopping());
        let connected = self.disks.iter().filter(|disk| disk.frontend().is_some());
        Health {
            status: if ending {
                Status::Ending
            } else {
                Status::Serving
            },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            disks: self.disks.len(),
            connected: connected.count(),
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
        }
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
