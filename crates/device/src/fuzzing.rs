//! For fuzzers: a queue without a session, a socket or a thread, and the configuration space.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use pollux_disk::{Channel, Effort, Geometry};
use pollux_memory::{Alarm, Memory};
use pollux_ring::{Areas, DeviceEnd, RingIndex, Suppression};
use pollux_stats::{QueueStats, Snapshot};

use crate::notify::Call;
use crate::observe::Observation;
use crate::poll::Progress;
use crate::queue::Rules;
use crate::queue::{self, Pace, Queue, Setup};
use crate::session::config::{self, MAX_RANGES};
use crate::tuning::Tuning;
use crate::worker::SessionId;
use crate::worker::SessionQueues;

pub use pollux_blk::{Cache, Config};

/// What a session would have negotiated for the queue.
#[derive(Debug)]
pub struct Plan {
    /// Where the ring lies.
    pub areas: Areas,
    /// The next available index.
    pub next: u16,
    /// How notifications are suppressed.
    pub suppression: Suppression,
    /// Was `INDIRECT_DESC` negotiated?
    pub indirect: bool,
    /// The memory that descriptors point into.
    pub memory: Arc<Memory>,
    /// Through which the driver is called.
    pub call: File,
    /// The disk.
    pub geometry: Geometry,
    /// The longest segment, where `SIZE_MAX` was negotiated.
    pub size_max: Option<u32>,
    /// The most segments; `None`: as many as a device takes at most.
    pub seg_max: Option<u32>,
    /// Was FLUSH negotiated?
    pub flush: bool,
    /// The cache mode: true is write-back.
    pub writeback: bool,
    /// The disk's serial number.
    pub serial: String,
}

/// A session with one queue on a worker that is turned by hand.
pub struct SingleQueue {
    session: SessionQueues,
    stats: Arc<QueueStats>,
    tuning: Tuning,
}

impl SingleQueue {
    /// The most ranges that a discard may have.
    pub const MAX_RANGES: u32 = MAX_RANGES;

    /// The most segments that a request may have.
    pub const SEG_MAX: u32 = config::SEG_MAX;

    /// A turn takes no more once it has done more work than this: so much for each step of the walk through a chain
    /// and, as the disk is taken to do everything at once, one for each byte of a request.
    pub const ENOUGH: u64 = queue::ENOUGH;

    /// The work of a step: a span, or a descriptor of no bytes.
    pub const STEP: u64 = queue::STEP;

    /// A running queue whose requests go through `channel`.
    ///
    /// # Errors
    ///
    /// When the process has no descriptors left.
    pub fn new(plan: Plan, channel: Box<dyn Channel>, tuning: Tuning) -> io::Result<Self> {
        // Nobody is at the other end of a connection that an alarm could shut down.
        let alarm = Arc::new(Alarm::new(plan.call.try_clone()?.into()));
        let stats = Arc::<QueueStats>::default();
        let next = RingIndex(plan.next);
        let setup = Setup {
            index: 0,
            ring: DeviceEnd::new(&plan.areas, next, plan.suppression, plan.indirect),
            record: None,
            memory: plan.memory,
            alarm,
            kick: None,
            call: Some(Call::new(plan.call)?),
            error: None,
            rules: Rules {
                geometry: plan.geometry,
                bytes: Arc::new(AtomicU64::new(plan.geometry.bytes)),
                size_max: plan.size_max,
                seg_max: plan.seg_max.unwrap_or(Self::SEG_MAX),
                max_ranges: MAX_RANGES,
                pace: Pace::of(Effort::Everything),
            },
            serial: pollux_blk::serial(&plan.serial),
            flush: plan.flush,
            writeback: Arc::new(AtomicBool::new(plan.writeback)),
            dirty: None,
            stats: Arc::clone(&stats),
            limiter: Arc::default(),
            observation: Arc::new(Observation::of(1)),
            log_quotas: Arc::default(),
            disk: String::new(),
        };
        let mut session = SessionQueues::new(SessionId(0), channel);
        session.start(Box::new(Queue::new(setup, tuning)));
        Ok(Self {
            session,
            stats,
            tuning,
        })
    }

    /// One turn of the worker.
    pub fn turn(&mut self) -> Progress {
        self.session.turn(self.tuning)
    }

    /// What the worker does before it sleeps.
    pub fn arm(&mut self) -> bool {
        self.session.arm()
    }

    /// What the worker does when it wakes.
    pub fn disarm(&mut self) {
        self.session.slept();
    }

    /// What the queue has counted.
    #[must_use]
    pub fn counted(&self) -> Snapshot {
        self.stats.snapshot()
    }

    /// Stops the queue: turns until all that it has taken has ended, at most `turns` times. The index of
    /// the chain that would have been taken next, or `None` if something has not ended by then.
    pub fn stop(&mut self, turns: usize) -> Option<u16> {
        let (stopped, is_stopped) = crossbeam_channel::bounded(1);
        self.session.stop(0, stopped);
        for _ in 0..turns {
            if let Ok(next) = is_stopped.try_recv() {
                return Some(next);
            }
            let _ = self.turn();
        }
        is_stopped.try_recv().ok()
    }
}

impl std::fmt::Debug for SingleQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SingleQueue").finish_non_exhaustive()
    }
}

/// The configuration space of a disk, and the `len` bytes at `offset` of it that a frontend reads.
#[must_use]
pub fn config_space(geometry: &Geometry, rings: Rings, offset: u32, len: u32) -> (Config, Vec<u8>) {
    let negotiated = config::Negotiated {
        num_queues: rings.num_queues,
        queue_size: rings.queue_size,
        smallest_direct_ring: rings.smallest_direct,
        cache: rings.cache,
    };
    let config = config::config(geometry, &negotiated);
    let window = config::window(&config, offset, len);
    (config, window)
}

/// What the configuration space depends on beside the disk.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    /// How many queues are offered.
    pub num_queues: u16,
    /// The largest ring.
    pub queue_size: u16,
    /// The smallest ring without indirect descriptors.
    pub smallest_direct: Option<u16>,
    /// The cache mode.
    pub cache: Cache,
}
