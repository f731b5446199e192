//! A disk as it is offered to frontends, one after the other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_blk::SERIAL_BYTES;
use pollux_disk::{Disk, Event, Events, Quota, Subscription};
use pollux_stats::{QueueStats, Snapshot};

use crate::limits::Limiter;
use crate::log_quotas::LogQuotas;
use crate::observe::Observation;

/// How a disk is offered.
///
/// ```
/// # use pollux_device::Options;
/// let options = Options::new("scratch").num_queues(4).serial("scratch-1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// What the log calls it: its socket, usually.
    pub name: String,
    /// How many queues a frontend may use, 1 to 256.
    pub num_queues: u16,
    /// The largest ring a frontend may set up: a power of two.
    pub queue_size: u16,
    /// The serial number, of at most 20 bytes.
    pub serial: String,
    /// Are pipes taken for kicks, calls and errors, where most frontends give eventfds?
    ///
    /// A frontend can hold the worker that uses its pipe for as long as it likes, and all devices of that worker with
    /// it. Take them only for a device whose workers serve no other.
    pub pipes: bool,
}

impl Options {
    /// As `pollux serve` offers a disk unless it is told otherwise: 16 queues of up to 1024 entries, and no serial
    /// number. Pipes are not taken.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            num_queues: 16,
            queue_size: 1024,
            serial: String::new(),
            pipes: false,
        }
    }

    /// These with so many [`num_queues`](#structfield.num_queues).
    #[must_use]
    pub fn num_queues(mut self, queues: u16) -> Self {
        self.num_queues = queues;
        self
    }

    /// These with this [`queue_size`](#structfield.queue_size).
    #[must_use]
    pub fn queue_size(mut self, entries: u16) -> Self {
        self.queue_size = entries;
        self
    }

    /// These with this [`serial`](#structfield.serial).
    #[must_use]
    pub fn serial(mut self, serial: impl Into<String>) -> Self {
        self.serial = serial.into();
        self
    }

    /// These with [`pipes`](#structfield.pipes) taken, or not.
    #[must_use]
    pub fn pipes(mut self, pipes: bool) -> Self {
        self.pipes = pipes;
        self
    }
}

/// A disk, how it is offered, and what its queues have counted.
pub struct Device {
    disk: Arc<dyn Disk>,
    options: Options,
    stats: Vec<Arc<QueueStats>>,
    limiter: Arc<Limiter>,
    observation: Arc<Observation>,
    log_quotas: Arc<LogQuotas>,
    capacity: Arc<Capacity>,
    _subscription: Subscription,
}

/// How large the disk is to requests, and which sessions are told when it grows.
///
/// A frontend is told after `bytes` was stored, and its driver uses what is new after it was told: a worker that reads
/// an available index with such a request in it, and then `bytes`, reads the new size.
#[derive(Debug)]
pub(crate) struct Capacity {
    bytes: Arc<AtomicU64>,
    changes: Events,
}

impl Device {
    /// Offers `disk` as `options` say.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, options: Options) -> Self {
        let stats = (0..options.num_queues).map(|_| Arc::default()).collect();
        let capacity = Arc::new(Capacity {
            bytes: Arc::new(AtomicU64::new(disk.geometry().bytes)),
            changes: Events::default(),
        });
        let (told, weak) = (Arc::clone(&capacity), Arc::downgrade(&disk));
        let subscription = disk.events().subscribe(move |event| {
            if let (Event::Changed, Some(disk)) = (event, weak.upgrade()) {
                told.is_now(&*disk);
            }
        });
        // It may have changed before that.
        capacity.is_now(&*disk);
        Self {
            observation: Arc::new(Observation::of(options.num_queues)),
            capacity,
            _subscription: subscription,
            disk,
            options,
            stats,
            limiter: Arc::default(),
            log_quotas: Arc::default(),
        }
    }

    /// Takes its limits from `limiter`, as all devices do that share it. Before it is served.
    #[must_use]
    pub fn limited_by(mut self, limiter: Arc<Limiter>) -> Self {
        self.limiter = limiter;
        self
    }

    /// Its limits.
    #[must_use]
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// What is noted of its requests.
    #[must_use]
    pub fn observation(&self) -> &Arc<Observation> {
        &self.observation
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Has every frontend read the size again. One that was away when the disk grew may not ask by itself.
    pub fn tell_size(&self) {
        self.capacity.changes.tell(Event::Changed);
    }

    /// How it is offered.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What each queue has counted since the device exists, over all sessions.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.stats.iter().map(|stats| stats.snapshot()).collect()
    }

    /// What each queue counts, as it counts it.
    pub fn queue_stats(&self) -> impl Iterator<Item = &QueueStats> {
        self.stats.iter().map(|stats| &**stats)
    }

    /// How many lines the log is told of frontends that were refused: what [`serve`](crate::serve) fails with.
    #[must_use]
    pub fn refusals(&self) -> &Quota {
        &self.log_quotas.refusals
    }

    pub(crate) fn log_quotas(&self) -> &Arc<LogQuotas> {
        &self.log_quotas
    }

    /// What requests are checked against, now and when it has changed.
    pub(crate) fn bytes(&self) -> &Arc<AtomicU64> {
        &self.capacity.bytes
    }

    /// Tells of changes of the configuration space once requests may rely on them.
    pub(crate) fn changes(&self) -> &Events {
        &self.capacity.changes
    }

    pub(crate) fn stats(&self, index: u16) -> &Arc<QueueStats> {
        &self.stats[usize::from(index)]
    }

    pub(crate) fn serial(&self) -> [u8; SERIAL_BYTES] {
        pollux_blk::serial(&self.options.serial)
    }
}

impl Capacity {
    /// The disk has changed. Two threads that tell of two changes may come here in either order, so each asks anew and
    /// then checks whether the other was faster.
    fn is_now(&self, disk: &dyn Disk) {
        loop {
            let bytes = disk.geometry().bytes;
            self.bytes.store(bytes, Ordering::Release);
            if disk.geometry().bytes == bytes {
                break;
            }
        }
        self.changes.tell(Event::Changed);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
