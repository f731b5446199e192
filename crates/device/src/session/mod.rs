//! One frontend's session: its messages, one after the other, on a thread of their own.
//!
//! The protocol itself is the crate `vhost`'s. Here is what the messages mean: memory comes and goes,
//! queues are described, started and stopped. A queue belongs to its worker while it runs; to change
//! what it stands on (addresses, removed memory) it is stopped, which ends what it has in flight, and
//! started again. Its notifiers, more memory and where it logs need no stop.

mod backend_channel;
mod cache;
pub mod config;
mod dirty;
mod framing;
mod mem_table;
mod messages;
mod notifier;
mod refusal;
mod server;
mod vring;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pollux_blk::{Config, feature};
use pollux_disk::{Admitted, Geometry, Subscription};
use pollux_memory::{Alarm, Memory, Region};
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserProtocolFeatures};

use crate::device::Device;
use crate::inflight::Inflight;
use crate::worker::{Command, Handle, SessionId, Workers};
use backend_channel::BackendChannel;
use cache::{CacheMode, Rings};
use dirty::Log;
use notifier::Use;
use vring::{Context, Vring};

pub use refusal::Refusal;
pub use server::serve;

/// How many memory regions a frontend may share: what other back ends allow, and QEMU uses at most.
const MAX_REGIONS: usize = 509;

/// How much memory a frontend may share, in bytes. Of the addresses that there are, it leaves some for other sessions.
const MAX_MEMORY: u64 = 32 << 40;

/// The state of one session.
pub struct Session {
    id: SessionId,
    device: Arc<Device>,
    workers: Arc<Workers>,
    memory: Arc<Memory>,
    log: Log,
    vrings: Vec<Vring>,
    features: u64,
    cache: CacheMode,
    /// Rung by what the frontend does to us without a message.
    alarm: Arc<Alarm>,
    /// Which workers have a channel of this session.
    channels: Vec<bool>,
    /// The disk is acquired: since the first queue started, until the last one is retired.
    held: bool,
    /// For messages of ours to the frontend.
    backend: Arc<BackendChannel>,
    _changes: Subscription,
    inflight: Option<Inflight>,
    /// Those of the protocol that the frontend has accepted.
    protocol: u64,
}

impl Session {
    pub fn new(device: Arc<Device>, workers: Arc<Workers>, alarm: Arc<Alarm>) -> Mutex<Self> {
        let vring = |index| Vring::new(index, &alarm);
        let backend = Arc::<BackendChannel>::default();
        let changes = device.changes().subscribe({
            let (backend, device) = (Arc::clone(&backend), Arc::downgrade(&device));
            move |_| {
                if let Some(device) = device.upgrade() {
                    let (name, quota) = (&device.options().name, &device.log_quotas().news);
                    backend.config_has_changed(name, quota);
                }
            }
        });
        Mutex::new(Self {
            id: workers.new_session(),
            vrings: (0..device.options().num_queues).map(vring).collect(),
            channels: vec![false; workers.count()],
            held: false,
            device,
            workers,
            memory: Arc::default(),
            log: Log::default(),
            features: 0,
            cache: CacheMode::default(),
            alarm,
            backend,
            _changes: changes,
            inflight: None,
            protocol: 0,
        })
    }

    /// The queue and its worker.
    fn vring(&mut self, index: u32) -> Result<(&mut Vring, &Handle), Refusal> {
        let queues = self.device.options().num_queues;
        let number = u16::try_from(index).ok().filter(|index| *index < queues);
        let number = number.ok_or(Refusal::NoQueue { index, queues })?;
        let worker = self.workers.get(self.workers.number_for(self.id, number));
        Ok((&mut self.vrings[usize::from(number)], worker))
    }

    /// Refuses a descriptor that is not fit for its use here.
    fn check(&self, index: u8, what: Use, file: Option<&File>) -> Result<(), Refusal> {
        notifier::check(index, what, file, self.device.options().pipes)
    }

    /// Starts queue `index` if all that it needs is there.
    fn start(&mut self, index: u32) -> Result<(), Refusal> {
        let features = self.features;
        let (vring, _) = self.vring(index)?;
        if !vring.can_start(features) {
            return Ok(());
        }
        if !self.held {
            // Also what fails may have taken some of it, or do so later.
            self.held = true;
            self.device.disk().acquire().map_err(Refusal::InUse)?;
        }
        let index = u16::try_from(index).expect("checked by `vring`");
        let number = self.workers.number_for(self.id, index);
        self.open_channel(number)?;
        self.device.stats(index).worker.set(number as u64);
        self.settle_cache();
        let context = Context {
            session: self.id,
            device: &self.device,
            memory: &self.memory,
            features: self.features,
            cache: &self.cache,
            log: self.log.wanted(self.features, &self.memory)?,
            inflight: self.inflight.as_ref(),
        };
        self.vrings[usize::from(index)].start(self.workers.get(number), &context)
    }

    /// Has the cache mode known before a queue runs, if the driver can switch it.
    fn settle_cache(&mut self) {
        if self.features & feature::CONFIG_WCE == 0 {
            return;
        }
        let begin = self.vrings.iter().all(|vring| vring.begins(&self.memory));
        let rings = if begin { Rings::Begin } else { Rings::GoOn };
        if self.cache.settle(self.inflight.as_ref(), rings)
            && let Some(Admitted { withheld }) = self.device.log_quotas().cache.admits()
        {
            tracing::info!(
                disk = self.device.options().name,
                withheld,
                "this driver was told its cache mode by another back end: write-through, until it switches"
            );
        }
    }

    /// Gives worker `number` a channel into the disk, once.
    fn open_channel(&mut self, number: usize) -> Result<(), Refusal> {
        if self.channels[number] {
            return Ok(());
        }
        let worker = self.workers.get(number);
        let channel = self
            .device
            .disk()
            .open_channel(worker.point())
            .map_err(Refusal::machine("open a channel into the disk"))?;
        worker.send(Command::Open {
            session: self.id,
            channel,
        });
        self.channels[number] = true;
        Ok(())
    }

    /// Stops queue `index`, if it runs.
    fn stop(&mut self, index: u32) -> Result<(), Refusal> {
        let (id, device) = (self.id, Arc::clone(&self.device));
        let (vring, worker) = self.vring(index)?;
        vring.stop(worker, id, &device.options().name);
        // Queues of other disks may have waited behind it for what limits these together.
        if !device.limiter().limits().is_empty() {
            self.workers.wake();
        }
        if self.vrings.iter().any(Vring::running) {
            for (number, _) in self.channels.iter().enumerate().filter(|(_, open)| **open) {
                self.workers
                    .get(number)
                    .send(Command::PollAll { session: id });
            }
        }
        Ok(())
    }

    /// Stops queue `index`, if it runs, until the frontend starts it again. With the last one the disk is let
    /// go: a guest that has migrated uses it elsewhere.
    fn retire(&mut self, index: u32) -> Result<(), Refusal> {
        self.stop(index)?;
        if self.vrings.iter().any(Vring::running) {
            return Ok(());
        }
        self.let_go()
            .map_err(Refusal::machine("let go of the disk"))
    }

    /// No queue runs: others may have the disk. The channels go first, so that one that is a queue of another daemon
    /// stops there as well.
    fn let_go(&mut self) -> io::Result<()> {
        for (number, open) in self.channels.iter_mut().enumerate() {
            if std::mem::take(open) {
                let (closed, is_closed) = crossbeam_channel::bounded(1);
                self.workers.get(number).send(Command::Close {
                    session: self.id,
                    closed,
                });
                // Dropped here. Disconnected only when the worker is gone, and its channels with it.
                let _ = is_closed.recv();
            }
        }
        if self.held {
            self.device.disk().release()?;
            self.held = false;
        }
        Ok(())
    }

    /// Changes what queues stand on: stops those that run, changes, and starts them again.
    fn at_rest(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let all = 0u32..;
        let ran: Vec<u32> = all
            .zip(&self.vrings)
            .filter(|(_, vring)| vring.running())
            .map(|(at, _)| at)
            .collect();
        for index in &ran {
            self.stop(*index)?;
        }
        // One that fails ends the session: nothing is to be started again.
        change(self)?;
        ran.into_iter().try_for_each(|index| self.start(index))
    }

    /// Has those of the queues `which` that run log where they are to log now. They need not rest for that: what is in
    /// flight is logged as it ends, however long that takes. Nothing has changed if it fails.
    fn log_anew(&self, which: Range<usize>) -> Result<(), Refusal> {
        let log = self.log.wanted(self.features, &self.memory)?;
        let run = which.filter(|at| self.vrings[*at].running());
        let logs = |at: usize| {
            let dirty = log.map(|log| self.vrings[at].dirty(log)).transpose()?;
            Ok((u16::try_from(at).expect("queues have small numbers"), dirty))
        };
        let all = run.map(logs).collect::<Result<Vec<_>, Refusal>>()?;
        let (done, is_done) = crossbeam_channel::bounded(all.len());
        for (index, dirty) in all {
            let number = self.workers.number_for(self.id, index);
            self.workers.get(number).send(Command::SetDirty {
                session: self.id,
                index,
                dirty,
                done: done.clone(),
            });
        }
        drop(done);
        // A worker that has panicked logs nowhere, and has dropped its end.
        while is_done.recv().is_ok() {}
        Ok(())
    }

    fn add_region(
        &self,
        memory: &Memory,
        region: &VhostUserMemoryRegion,
        file: File,
    ) -> Result<Memory, Refusal> {
        if memory.regions().len() == MAX_REGIONS {
            return Err(Refusal::TooManyRegions(MAX_REGIONS));
        }
        let (offset, guest, user, len) = (
            region.mmap_offset,
            region.guest_phys_addr,
            region.user_addr,
            region.memory_size,
        );
        let shared = memory.regions().iter().map(|region| region.len());
        if shared.fold(len, u64::saturating_add) > MAX_MEMORY {
            return Err(Refusal::TooMuchMemory(MAX_MEMORY));
        }
        let region = Region::of_peer(file, offset, guest, user, len)?;
        let region = Arc::new(region.with_alarm(Arc::clone(&self.alarm)));
        let memory = memory.with(Arc::clone(&region))?;
        self.log.wanted(self.features, &memory)?;
        let failed = Refusal::machine("announce a memory region to the disk");
        self.device.disk().map(&region).map_err(failed)?;
        Ok(memory)
    }

    fn forget_regions<'a>(&self, regions: impl IntoIterator<Item = &'a Arc<Region>>) {
        for region in regions {
            self.device.disk().unmap(region);
        }
    }

    /// Are messages acknowledged that ask for it?
    pub fn acknowledges(&self) -> bool {
        self.protocol & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0
    }

    /// The frontend offers this descriptor for messages of ours; what it says of it follows.
    pub fn offered(&self, channel: OwnedFd) {
        self.backend.offer(channel);
    }

    /// Ends the session: everything in flight has ended, and nothing of it is left, when this returns.
    pub fn end(&mut self) {
        for index in 0..self.vrings.len() {
            let index = u32::try_from(index).expect("queues have small numbers");
            self.stop(index).expect("these queues exist");
        }
        if let Err(error) = self.let_go() {
            tracing::error!(disk = self.device.options().name, %error, "the disk is kept: no other program may use it");
        }
        let memory = std::mem::take(&mut self.memory);
        self.forget_regions(memory.regions());
    }

    fn config(&self) -> Config {
        let direct = self.features != 0 && self.features & feature::INDIRECT_DESC == 0;
        let smallest = || self.vrings.iter().filter_map(|vring| vring.size).min();
        let options = self.device.options();
        let negotiated = config::Negotiated {
            num_queues: options.num_queues,
            queue_size: options.queue_size,
            smallest_direct_ring: direct.then(smallest).flatten(),
            cache: self.cache.shown(),
        };
        let geometry = Geometry {
            // Not more than requests may use by now.
            bytes: self.device.bytes().load(Ordering::Acquire),
            ..self.device.disk().geometry()
        };
        config::config(&geometry, &negotiated)
    }
}
