//! What all queues of one connection share: the device as they see it, and whether it is still there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use pollux_blk::{Cache, Config, SECTOR, feature};
use pollux_disk::{Access, Event, Events, Geometry, RangeLimits};
use pollux_memory::Region;

use crate::arena::Pool;
use crate::connection::Connection;
use crate::control::Control;
use crate::counters::{Counters, Counts};
use crate::error::{Lost, Nonsense, Refusal};
use crate::limits::Limits;
use crate::options::Options;
use crate::table::Known;

/// What the device says of itself, and what follows for requests.
#[derive(Debug)]
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
    /// For looking at on the hot path; set after `why`.
    lost: AtomicBool,
    why: OnceLock<Lost>,
    /// The call descriptors of the queues that run, to wake whoever sleeps over a device that is gone.
    calls: Mutex<Vec<(u16, Arc<OwnedFd>)>>,
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
            lost: AtomicBool::new(false),
            why: OnceLock::new(),
            calls: Mutex::default(),
            events: Events::default(),
            counts: (0..queues).map(|_| Arc::default()).collect(),
            holders: Mutex::new(vec![Holder::Nobody; usize::from(queues)].into()),
            stopped: Condvar::new(),
            control: OnceLock::new(),
        });
        let (changes, losses) = (Arc::downgrade(&device), Arc::downgrade(&device));
        let control = Control::start(
            Arc::clone(&device.connection),
            Box::new(move |config| {
                if let Some(device) = changes.upgrade() {
                    device.changed(&config);
                }
            }),
            Box::new(move |why| {
                if let Some(device) = losses.upgrade() {
                    device.tell_loss(why);
                }
            }),
        )?;
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
        let running = lock(&self.holders)
            .iter()
            .any(|holder| *holder != Holder::Nobody);
        if running && self.connection.replaces_memory() {
            let message = "to share more memory while queues run";
            return Err(Refusal::Refused { message });
        }
        self.connection.add_region(region)
    }

    /// What all queues have counted.
    pub fn counters(&self) -> Counters {
        let all = self.counts.iter().map(|counts| counts.snapshot());
        all.fold(Counters::default(), Counters::plus)
    }

    /// The configuration has changed.
    pub fn changed(&self, config: &Config) {
        let mut facts = lock(&self.facts);
        let features = self.connection.features();
        match facts.followed_by(features, config) {
            Ok(next) => *facts = Arc::new(next),
            Err(fault) => {
                tracing::warn!(%fault, "the disk says nonsense of itself, and counts as unchanged");
                return;
            }
        }
        self.generation.store(facts.generation, Ordering::Release);
        drop(facts);
        self.events.tell(Event::Changed);
    }

    /// Is the device gone?
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
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
        self.lost.store(true, Ordering::SeqCst);
        self.connection.lose(why);
    }

    /// Tells everybody that the device is gone: sleepers first, each of whom gives up what its queue has
    /// in flight.
    fn tell_loss(&self, why: Lost) {
        self.lose(why);
        for (_, call) in lock(&self.calls).iter() {
            signal(call);
        }
        self.events.tell(Event::Lost);
    }

    /// Whoever sleeps at `call` is woken when the device is gone, until [`Device::ignore`].
    pub fn heed(&self, queue: u16, call: &Arc<OwnedFd>) {
        lock(&self.calls).push((queue, Arc::clone(call)));
        if self.is_lost() {
            signal(call);
        }
    }

    /// Takes [`Device::heed`] back.
    pub fn ignore(&self, queue: u16) {
        lock(&self.calls).retain(|(other, _)| *other != queue);
    }
}

fn signal(call: &OwnedFd) {
    // It can fail only by `EAGAIN`, when it is signalled already.
    let _ = rustix::io::write(call.as_fd(), &1u64.to_ne_bytes());
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
