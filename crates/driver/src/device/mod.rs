//! What all queues of one connection share: the device as they see it, and whether it is still there.

pub mod active_queue;
pub mod limits;
pub mod queue_record;
pub mod rings;
mod server_events;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use pollux_blk::{Cache, Config, SECTOR, feature};
use pollux_disk::{Access, Events, Geometry, RangeLimits};
use pollux_memory::Region;
use pollux_ring::Suppression;

use crate::connection::monitor::Control;
use crate::connection::{Connection, QueueFds};
use crate::counters::{Counters, Counts};
use crate::device::limits::FRAME;
use crate::device::limits::Limits;
use crate::device::queue_record::Running;
use crate::device::rings::Rings;
use crate::error::{Lost, Nonsense, Refusal};
use crate::memory::arena::Pool;
use crate::memory::known_regions::Known;
use crate::options::Options;

/// What the device says of itself, and what follows for requests.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Size, blocks, abilities.
    pub geometry: Geometry,
    /// What one request may hold.
    pub limits: Limits,
    /// Does a write need a flush to be stable? Not without the feature, nor on a write-through disk.
    pub flushes: bool,
    /// Counts the changes.
    pub generation: u64,
}

/// Who has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It may be taken.
    Nobody,
    /// A channel of its own.
    Channel,
    /// All who share it, until the last of them has let go and it has stopped.
    Everybody,
    /// It could not be started or stopped, so nobody knows what the device does with it.
    Stuck,
}

/// The device.
#[derive(Debug)]
pub struct Device {
    connection: Arc<Connection>,
    options: Options,
    pool: Pool,
    facts: Mutex<Arc<Facts>>,
    generation: AtomicU64,
    /// Counts the servers that there have been, or says that there will be no other: for looking at on the
    /// hot path. [`LOST`] is set after `why`.
    epoch: AtomicU64,
    why: OnceLock<Lost>,
    reconnects: AtomicU64,
    running: Mutex<Vec<Running>>,
    /// Held while the server is told of queues: one that it is told to start or stop is not at the same
    /// time started by the control thread at a server that has come back.
    turnover: Mutex<()>,
    events: Events,
    /// By queue, for as long as the device is there.
    counts: Box<[Arc<Counts>]>,
    /// Who has which queue.
    holders: Mutex<Box<[Holder]>>,
    /// A queue has stopped.
    stopped: Condvar,
    /// The thread that notices what the server does unasked. It ends with the device.
    control: OnceLock<Control>,
}

/// The epoch of a device that is gone.
const LOST: u64 = u64::MAX;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
            Pool::of_one(Box::new(move |region| Ok(registers.add_region(region)?)))?
        } else {
            Pool::new(Box::new(move |region| Ok(registers.add_region(region)?)))
        };
        let device = Arc::new(Self {
            connection,
            options,
            pool,
            facts: Mutex::new(Arc::new(facts)),
            generation: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            why: OnceLock::new(),
            reconnects: AtomicU64::new(0),
            running: Mutex::default(),
            turnover: Mutex::default(),
            events: Events::default(),
            counts: (0..queues).map(|_| Arc::default()).collect(),
            holders: Mutex::new(vec![Holder::Nobody; usize::from(queues)].into()),
            stopped: Condvar::new(),
            control: OnceLock::new(),
        });
        let told = Arc::downgrade(&device);
        let control = Control::start(Arc::clone(&device.connection), told)?;
        let set = device.control.set(control);
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

    /// Takes the first queue of those that nobody has, for a channel.
    pub fn take(&self, within: impl Iterator<Item = u16>) -> Option<u16> {
        let mut holders = lock(&self.holders);
        let free = within
            .into_iter()
            .find(|index| holders[usize::from(*index)] == Holder::Nobody)?;
        holders[usize::from(free)] = Holder::Channel;
        Some(free)
    }

    /// Takes queue `index` for all who share it, of whom the caller is the first. The last of those before
    /// may just have let go: then this waits until the queue has stopped.
    ///
    /// # Errors
    ///
    /// Who has it otherwise.
    pub fn take_shared(&self, index: u16) -> Result<(), Holder> {
        let index = usize::from(index);
        let holders = lock(&self.holders);
        let stops = |holders: &mut Box<[Holder]>| holders[index] == Holder::Everybody;
        let holders = self.stopped.wait_while(holders, stops);
        let mut holders = holders.unwrap_or_else(PoisonError::into_inner);
        match holders[index] {
            Holder::Nobody => {
                holders[index] = Holder::Everybody;
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Takes [`Device::take`] back, or [`Device::take_shared`]: `to` have queue `index` now.
    pub fn give_back(&self, index: u16, to: Holder) {
        lock(&self.holders)[usize::from(index)] = to;
        self.stopped.notify_all();
    }

    /// The protocol with the server.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Buffers that the device knows.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Which memory the device knows.
    #[inline]
    pub fn known(&self) -> &Known {
        self.connection.known()
    }

    /// Who is told when the disk changes.
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
        if !self.can_change_memory() {
            let message = "to share more memory while queues run";
            return Err(Refusal::Refused { message });
        }
        self.connection.add_region(region)
    }

    /// May memory of the user's come and go? Not while queues run, if the server takes it all anew.
    pub fn can_change_memory(&self) -> bool {
        let running = lock(&self.holders)
            .iter()
            .any(|holder| *holder != Holder::Nobody);
        !(running && self.connection.replaces_memory())
    }

    /// What all queues have counted.
    pub fn counters(&self) -> Counters {
        let all = self.counts.iter().map(|counts| counts.snapshot());
        all.fold(Counters::default(), Counters::plus)
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

    /// Which server it is by now. Whoever finds another than it knew is either lost, or
    /// [claims](Self::claim) its queue's rings.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
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
        // Before anybody hears of it, and gives memory back that the device may still write to.
        self.pool.give_up();
        self.epoch.store(LOST, Ordering::SeqCst);
        self.connection.lose(why);
    }

    /// Wakes all who sleep over a queue, after the epoch has changed: each looks at it.
    fn signal(&self) {
        lock(&self.running).iter().for_each(Running::signal);
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

    /// Starts queue `index`, to be woken by `fds`. While the server is away nobody answers: it is started
    /// once it is back.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the machine lacks something.
    pub fn start(&self, index: u16, fds: &QueueFds, rings: Arc<Rings>) -> Result<(), Refusal> {
        let _turnover = lock(&self.turnover);
        let (at, size) = (rings.addresses(), rings.size());
        lock(&self.running).push(Running::new(index, fds.clone(), rings, self.epoch()));
        let started = self.connection.start_queue(index, fds, &at, size);
        match started {
            Ok(()) => self.with(index, Running::has_started),
            Err(refusal) if self.connection.is_away(&refusal) => {}
            Err(refusal) => {
                self.forget(index);
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Stops queue `index`; who has it then?
    pub fn stop(&self, index: u16) -> Holder {
        let _turnover = lock(&self.turnover);
        let running = self.forget(index);
        if self.is_lost() {
            return Holder::Stuck;
        }
        match self.connection.stop_queue(index) {
            Ok(next) => {
                running.rings.stopped(next);
                return Holder::Nobody;
            }
            // The next server has never heard of it.
            Err(refusal) if self.connection.is_away(&refusal) => return Holder::Nobody,
            Err(Refusal::Lost(why)) => self.lose(why),
            Err(refusal) => {
                tracing::warn!(%refusal, queue = index, "a queue was not stopped, and is not used again");
            }
        }
        Holder::Stuck
    }

    /// Fresh rings of queue `index`, for the next server.
    fn prepare(&self, index: u16) -> io::Result<(QueueFds, Arc<Rings>)> {
        // Not under the list's lock: whoever looks at a queue may want that.
        let spare = self.with(index, Running::take_spare);
        let rings = match spare {
            // A server that was gone soon may have written to them.
            Some(rings) => {
                rings.clear();
                rings
            }
            None => Arc::new(self.new_rings()?),
        };
        Ok(self.with(index, |one| {
            one.put_spare(Arc::clone(&rings));
            (one.fds.clone(), rings)
        }))
    }

    fn forget(&self, index: u16) -> Running {
        let mut running = lock(&self.running);
        let at = running.iter().position(|one| one.index == index);
        running.swap_remove(at.expect("it runs"))
    }

    fn with<T>(&self, index: u16, what: impl FnOnce(&mut Running) -> T) -> T {
        let mut running = lock(&self.running);
        let one = running.iter_mut().find(|one| one.index == index);
        what(one.expect("it runs"))
    }

    /// The rings on which the owner of queue `index` goes on from now on, and which epoch that is.
    pub fn claim(&self, index: u16) -> (u64, Arc<Rings>) {
        self.with(index, Running::claim)
    }
}

impl Facts {
    /// What a device says of itself first.
    ///
    /// # Errors
    ///
    /// When that cannot be.
    pub fn new(features: u64, config: &Config, options: &Options) -> Result<Self, Nonsense> {
        let has = |bit| features & bit != 0;
        let block = if has(feature::BLK_SIZE) {
            config.blk_size
        } else {
            512
        };
        if !block.is_power_of_two() || u64::from(block) < SECTOR {
            return Err(Nonsense::BlockSize { bytes: block });
        }
        let limits = Limits::new(features, config, options.queue_size, block);
        if limits.bytes() < u64::from(block) {
            let most = limits.bytes();
            return Err(Nonsense::Requests { most, block });
        }
        let topology = config.topology;
        let blocks = |count: u32| count.saturating_mul(block);
        let geometry = Geometry {
            bytes: size(config, block)?,
            access: if has(feature::RO) || options.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            block,
            physical_block: if has(feature::TOPOLOGY) {
                1u32.checked_shl(u32::from(topology.physical_block_exp))
                    .map_or(block, blocks)
            } else {
                block
            },
            min_io: if has(feature::TOPOLOGY) {
                blocks(u32::from(topology.min_io_size))
            } else {
                0
            },
            optimal_io: if has(feature::TOPOLOGY) {
                blocks(topology.opt_io_size)
            } else {
                0
            },
            discard: has(feature::DISCARD).then(|| RangeLimits {
                max_bytes: limits.discard,
                alignment: aligned(config.discard.sector_alignment, block),
            }),
            write_zeroes: has(feature::WRITE_ZEROES).then_some(RangeLimits {
                max_bytes: limits.write_zeroes,
                alignment: block,
            }),
        };
        Ok(Self {
            geometry,
            limits,
            flushes: flushes(features, config),
            generation: 0,
        })
    }

    /// What it says of itself later: its size and its cache mode are believed. Everything else stays as
    /// it was, whatever it says: requests are cut already, and the queues' tables are as long as they are.
    ///
    /// # Errors
    ///
    /// When the size cannot be.
    fn followed_by(&self, features: u64, config: &Config) -> Result<Self, Nonsense> {
        Ok(Self {
            geometry: Geometry {
                bytes: size(config, self.geometry.block)?,
                ..self.geometry
            },
            limits: self.limits,
            flushes: flushes(features, config),
            generation: self.generation + 1,
        })
    }
}

/// The bytes of the disk, in whole blocks.
fn size(config: &Config, block: u32) -> Result<u64, Nonsense> {
    let sectors = config.capacity;
    let bytes = sectors.checked_mul(SECTOR);
    let bytes = bytes.ok_or(Nonsense::Capacity { sectors })?;
    Ok(bytes - bytes % u64::from(block))
}

/// Does a write need a flush to be stable?
fn flushes(features: u64, config: &Config) -> bool {
    let has = |bit| features & bit != 0;
    let writeback = !has(feature::CONFIG_WCE) || config.writeback == Cache::Writeback;
    has(feature::FLUSH) && writeback
}

/// An alignment of `sectors` in bytes, no smaller than a block.
fn aligned(sectors: u32, block: u32) -> u32 {
    let bytes = u64::from(sectors) * SECTOR;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(block)
}

#[cfg(test)]
mod tests;
