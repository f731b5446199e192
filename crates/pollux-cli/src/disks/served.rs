//! A disk that is served, and what others are told of it.

use std::sync::Arc;

use pollux::device::Device;
use pollux::disk::{Access, Spec, Subscription};
use pollux::stats::Snapshot;
use tokio::sync::watch;

use super::stop::Stop;
use crate::model::{Count, Counters, Disk, DiskStats, Frontend, Latency, NewDisk, QueueCounters};

/// A disk that is served.
pub struct Served {
    /// What it is called.
    pub name: String,
    /// What was opened.
    pub spec: Spec,
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
    /// Goes once it has.
    pub ended: watch::Sender<()>,
    /// Has those told that listen to events.
    #[expect(dead_code, reason = "held for its drop")]
    pub resizes: Option<Subscription>,
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
            leaving: self.removed,
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
                    is_throttled: now.throttled_time.lasts(),
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

    pub fn frontend(&self) -> Option<Frontend> {
        self.stop.frontend().map(|peer| Frontend {
            pid: peer.pid,
            uid: peer.uid,
            gid: peer.gid,
        })
    }
}
