//! What all queues of one connection share: the device as they see it, and whether it is still there.

pub mod active_queue;
pub mod facts;
pub mod holders;
pub mod kept;
pub mod limits;
pub mod queue_record;
pub mod rings;
mod server_events;
mod turnover;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pollux_blk::feature;
use pollux_disk::{Events, Quota};
use pollux_memory::{Alarm, Region};
use pollux_ring::Suppression;
use pollux_threads::lock;

use crate::connection::Connection;
use crate::connection::monitor::Monitor;
use crate::connection::regions::Origin;
use crate::counters::{Counters, Counts};
use crate::device::facts::Facts;
use crate::device::holders::Holders;
use crate::device::kept::Kept;
use crate::device::limits::FRAME;
use crate::device::queue_record::QueueRecord;
use crate::device::rings::Rings;
use crate::error::{Lost, Refusal};
use crate::memory::known_regions::KnownRegions;
use crate::memory::pool::Pool;
use crate::options::Options;

/// The device.
#[derive(Debug)]
pub struct Device {
    connection: Arc<Connection>,
    options: Options,
    pool: Pool,
    /// Rung by the loss of memory that the program has registered.
    alarm: Arc<Alarm>,
    facts: Mutex<Arc<Facts>>,
    generation: AtomicU64,
    /// Counts the servers that there have been, or says that there will be no other: for reading on the
    /// hot path. [`LOST`] is set after `why`.
    epoch: AtomicU64,
    /// How often the server was found to be away.
    absences: AtomicU64,
    why: OnceLock<Lost>,
    reconnects: AtomicU64,
    running: Mutex<Vec<QueueRecord>>,
    /// Rings that no queue uses any more, and that a server may still write to.
    kept: Kept,
    /// Held while the server is told of queues: one that it is told to start or stop is not at the same
    /// time started by the control thread at a server that has come back.
    turnover: Mutex<()>,
    events: Events,
    /// For lines about changes that make no sense.
    nonsense: Quota,
    handed: Quota,
    /// By queue, for as long as the device is there.
    counts: Box<[Arc<Counts>]>,
    /// What holds each queue.
    holders: Holders,
    /// The thread that notices what the server does unasked. It ends with the device.
    monitor: OnceLock<Monitor>,
}

/// The epoch of a device that is gone.
const LOST: u64 = u64::MAX;

impl Device {
    /// The device at the other end of `connection`.
    ///
    /// # Errors
    ///
    /// When the machine lacks a thread or descriptors.
    pub fn new(connection: Connection, facts: Facts, options: Options) -> io::Result<Arc<Self>> {
        let connection = Arc::new(connection);
        let queues = connection.queues();
        let registers = Arc::clone(&connection);
        // A server that takes its memory all anew would lose what is in flight with the old: such a one
        // gets a large arena before its queues start, and no other. It is sparse, and costs nothing.
        let pool = if connection.replaces_memory() {
            Pool::of_one(Box::new(move |region| {
                Ok(registers.add_region(region, Origin::Pool)?)
            }))?
        } else {
            Pool::with_first(Box::new(move |region| {
                Ok(registers.add_region(region, Origin::Pool)?)
            }))?
        };
        let device = Arc::new(Self {
            connection,
            options,
            pool,
            alarm: Arc::new(Alarm::silent()),
            facts: Mutex::new(Arc::new(facts)),
            generation: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            absences: AtomicU64::new(0),
            why: OnceLock::new(),
            reconnects: AtomicU64::new(0),
            running: Mutex::default(),
            kept: Kept::default(),
            turnover: Mutex::default(),
            events: Events::default(),
            nonsense: Quota::default(),
            handed: Quota::default(),
            counts: (0..queues).map(|_| Arc::default()).collect(),
            holders: Holders::of(queues),
            monitor: OnceLock::new(),
        });
        let observer = Arc::downgrade(&device);
        let monitor = Monitor::start(Arc::clone(&device.connection), observer)?;
        let set = device.monitor.set(monitor);
        debug_assert!(set.is_ok(), "it is set once");
        Ok(device)
    }

    /// How many queues may be used.
    pub fn queues(&self) -> u16 {
        u16::try_from(self.counts.len()).expect("made of a u16")
    }

    /// What queue `index` counts.
    pub fn counts(&self, index: u16) -> &Arc<Counts> {
        &self.counts[usize::from(index)]
    }

    /// For lines about requests that a server is handed after another one.
    pub fn handed(&self) -> &Quota {
        &self.handed
    }

    /// What holds each queue.
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// The protocol with the server.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// No queue uses `rings` from now on, which the server of `epoch` was the last to be told of.
    pub fn keep(&self, epoch: u64, rings: Arc<Rings>) {
        // After the last server there is none that these could be kept for.
        if !self.is_lost() {
            self.kept.keep(epoch, rings);
        }
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Buffers that the device knows.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// For memory that the program registers.
    pub fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Is memory gone that the program registered? The device is lost with it.
    #[inline]
    pub fn has_lost_memory(&self) -> bool {
        let is_gone = self.alarm.is_rung();
        if is_gone {
            self.lose(Lost::Memory);
        }
        is_gone
    }

    /// Which memory the device knows.
    #[inline]
    pub fn known(&self) -> &KnownRegions {
        self.connection.known()
    }

    /// The listeners that are told when the disk changes.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// What the device says of itself now.
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(&lock(&self.facts))
    }

    /// Which version of the facts is the current one.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Shares memory of the user's with the device.
    ///
    /// # Errors
    ///
    /// When the server takes no more, or is one that takes its memory all anew and has queues that run.
    pub fn share(&self, region: &Arc<Region>) -> Result<(), Refusal> {
        let _turnover = lock(&self.turnover);
        if !self.can_change_memory() {
            let message = "to share more memory while queues run";
            return Err(Refusal::Refused { message });
        }
        self.connection.add_region(region, Origin::User)
    }

    /// Has the device forget memory that was shared. A server that takes its memory all anew would lose what queues have
    /// in flight: while some run it is not told, and keeps it until other memory comes or goes.
    pub fn unshare(&self, region: &Arc<Region>) {
        let _turnover = lock(&self.turnover);
        let told = self
            .connection
            .remove_region(region, self.can_change_memory());
        if let Err(refusal) = told {
            tracing::debug!(%refusal, "memory stays shared with the device");
        }
    }

    /// May memory of the user's come and go? Not while queues run, if the server takes it all anew.
    pub fn can_change_memory(&self) -> bool {
        !(self.holders.have_any() && self.connection.replaces_memory())
    }

    /// What all queues have counted.
    pub fn counters(&self) -> Counters {
        let all = self.counts.iter().map(|counts| counts.snapshot());
        all.fold(Counters::default(), Counters::plus)
    }

    /// How many chains have come back from any queue for good.
    fn ended(&self) -> u64 {
        self.counts.iter().map(|counts| counts.ended()).sum()
    }

    /// Every queue hears of `facts` before its next request.
    fn set_facts(&self, facts: Facts) {
        let mut current = lock(&self.facts);
        self.generation.store(facts.generation, Ordering::Release);
        *current = Arc::new(facts);
    }

    /// Is the device gone?
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.epoch() == LOST
    }

    /// Which server it is by now. An owner that finds another than it knew is either lost, or
    /// [claims](Self::claim) its queue's rings.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Changes when the server goes away, and when another takes its place.
    pub fn replacements(&self) -> u64 {
        self.epoch()
            .wrapping_add(self.absences.load(Ordering::Relaxed))
    }

    /// How many servers have taken the place of another.
    pub fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// Why it is gone, once it is.
    pub fn why(&self) -> Option<&Lost> {
        self.why.get()
    }

    /// The device is gone. Only the first reason counts. Never waits, and may be called under any lock:
    /// the connection is closed, upon which the control thread tells everybody.
    pub fn lose(&self, why: Lost) {
        let _ = self.why.set(why.clone());
        // Before any owner hears of it, and gives memory back that the device may still write to.
        self.pool.give_up();
        self.epoch.store(LOST, Ordering::SeqCst);
        self.connection.lose(why);
    }

    /// Wakes all that sleep over a queue, after the epoch has changed: each reads it.
    fn wake_sleepers(&self) {
        lock(&self.running)
            .iter()
            .for_each(QueueRecord::wake_sleepers);
    }

    /// Fresh memory for a queue.
    ///
    /// # Errors
    ///
    /// When there is none, or the process is out of descriptors.
    pub fn new_rings(&self) -> io::Result<Rings> {
        let has = |bit| self.connection.features() & bit != 0;
        let suppression = if has(feature::EVENT_IDX) {
            Suppression::EventIdx
        } else {
            Suppression::Flags
        };
        let size = self.options.queue_size;
        // Room in a table for the largest request, and no more than a chain may have.
        let most = self.facts().limits.buffers + FRAME;
        let entries = u16::try_from(most).unwrap_or(size).min(size);
        let tables = has(feature::INDIRECT_DESC).then_some(entries);
        Rings::new(&self.pool, size, suppression, tables)
    }
}
