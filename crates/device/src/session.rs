//! One frontend's session: its messages, one after the other, on a thread of their own.
//!
//! The protocol itself is the crate `vhost`'s. Here is what the messages mean: memory comes and goes,
//! queues are described, started and stopped. A queue belongs to its worker while it runs; to change
//! what it stands on (addresses, removed memory) it is stopped, which ends what it has in flight, and
//! started again.

use std::fs::File;
use std::sync::{Arc, Mutex};

use pollux_blk::{Cache, Config, feature};
use pollux_disk::Admitted;
use pollux_memory::{Alarm, Memory, Region};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Backend, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use crate::cache::{CacheMode, Rings};
use crate::config;
use crate::device::Device;
use crate::dirty::Log;
use crate::inflight::Inflight;
use crate::notifier::{self, Use};
use crate::refusal::Refusal;
use crate::tuning::Tuning;
use crate::vring::{Addresses, Context, Kick, Vring};
use crate::worker::{Command, SessionId};
use crate::workers::{Handle, Workers};

/// How many memory regions a frontend may share: what other back ends allow, and QEMU uses at most.
const MAX_REGIONS: usize = 509;

/// The state of one session.
pub struct Session {
    id: SessionId,
    device: Arc<Device>,
    workers: Arc<Workers>,
    tuning: Tuning,
    memory: Arc<Memory>,
    log: Log,
    vrings: Vec<Vring>,
    features: u64,
    cache: CacheMode,
    /// Rung by what the frontend does to us without a message.
    alarm: Arc<Alarm>,
    /// Which workers have a share of this session.
    shares: Vec<bool>,
    /// For requests of ours to the frontend. None yet; held, so that the frontend's end stays open.
    backend: Option<Backend>,
    inflight: Option<Inflight>,
    /// Those of the protocol that the frontend has accepted.
    protocol: u64,
}

impl Session {
    pub fn new(
        device: Arc<Device>,
        workers: Arc<Workers>,
        tuning: Tuning,
        alarm: Arc<Alarm>,
    ) -> Mutex<Self> {
        let vring = |index| Vring::new(index, &alarm);
        Mutex::new(Self {
            id: workers.new_session(),
            vrings: (0..device.options().num_queues).map(vring).collect(),
            shares: vec![false; workers.count()],
            device,
            workers,
            tuning,
            memory: Arc::default(),
            log: Log::default(),
            features: 0,
            cache: CacheMode::default(),
            alarm,
            backend: None,
            inflight: None,
            protocol: 0,
        })
    }

    /// The queue and its worker.
    fn vring(&mut self, index: u32) -> std::result::Result<(&mut Vring, &Handle), Refusal> {
        let queues = self.device.options().num_queues;
        let number = u16::try_from(index).ok().filter(|index| *index < queues);
        let number = number.ok_or(Refusal::NoQueue { index, queues })?;
        let worker = self.workers.get(self.workers.number_for(self.id, number));
        Ok((&mut self.vrings[usize::from(number)], worker))
    }

    /// Starts queue `index` if all that it needs is there.
    fn start(&mut self, index: u32) -> std::result::Result<(), Refusal> {
        let features = self.features;
        let (vring, _) = self.vring(index)?;
        if !vring.can_start(features) {
            return Ok(());
        }
        self.device.disk().acquire().map_err(Refusal::InUse)?;
        let index = u16::try_from(index).expect("checked by `vring`");
        let number = self.workers.number_for(self.id, index);
        self.open_share(number)?;
        self.settle_cache();
        let context = Context {
            session: self.id,
            device: &self.device,
            memory: &self.memory,
            features: self.features,
            cache: &self.cache,
            log: self.log.wanted(self.features, &self.memory)?,
            tuning: self.tuning,
            inflight: self.inflight.as_ref(),
        };
        self.vrings[usize::from(index)].start(self.workers.get(number), &context)
    }

    /// Has the cache mode known before a queue runs, if the driver can switch it.
    fn settle_cache(&mut self) {
        if self.features & feature::CONFIG_WCE == 0 {
            return;
        }
        let begin = self.vrings.iter().all(|vring| vring.base == 0);
        let rings = if begin { Rings::Begin } else { Rings::GoOn };
        if self.cache.settle(self.inflight.as_ref(), rings)
            && let Some(Admitted { withheld }) = self.device.lines().cache.admits()
        {
            tracing::info!(
                disk = self.device.options().name,
                withheld,
                "this driver was told its cache mode by somebody else: write-through, until it switches"
            );
        }
    }

    /// Gives worker `number` a channel into the disk, once.
    fn open_share(&mut self, number: usize) -> std::result::Result<(), Refusal> {
        if self.shares[number] {
            return Ok(());
        }
        let worker = self.workers.get(number);
        let channel = self
            .device
            .disk()
            .open_channel(worker.point())
            .map_err(|source| Refusal::Machine {
                doing: "open a channel into the disk",
                source,
            })?;
        worker.send(Command::Open {
            session: self.id,
            channel,
        });
        self.shares[number] = true;
        Ok(())
    }

    /// Stops queue `index`, if it runs.
    fn stop(&mut self, index: u32) -> std::result::Result<(), Refusal> {
        let id = self.id;
        let (vring, worker) = self.vring(index)?;
        vring.stop(worker, id);
        if self.vrings.iter().any(Vring::running) {
            for (number, _) in self.shares.iter().enumerate().filter(|(_, open)| **open) {
                self.workers.get(number).send(Command::Look { session: id });
            }
        }
        Ok(())
    }

    /// Stops queue `index`, if it runs, until the frontend starts it again. With the last one the disk is let
    /// go: a guest that has migrated uses it elsewhere.
    fn retire(&mut self, index: u32) -> std::result::Result<(), Refusal> {
        self.stop(index)?;
        if self.vrings.iter().any(Vring::running) {
            return Ok(());
        }
        let failed = |source| Refusal::Machine {
            doing: "let go of the disk",
            source,
        };
        self.device.disk().release().map_err(failed)
    }

    /// Changes what queues stand on: stops those that run, changes, and starts them again.
    fn at_rest(
        &mut self,
        change: impl FnOnce(&mut Self) -> std::result::Result<(), Refusal>,
    ) -> std::result::Result<(), Refusal> {
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

    fn add_region(
        &self,
        memory: &Memory,
        region: &VhostUserMemoryRegion,
        file: File,
    ) -> std::result::Result<Memory, Refusal> {
        if memory.regions().len() == MAX_REGIONS {
            return Err(Refusal::TooManyRegions(MAX_REGIONS));
        }
        let (offset, guest, user, len) = (
            region.mmap_offset,
            region.guest_phys_addr,
            region.user_addr,
            region.memory_size,
        );
        let region = Region::map(file, offset, guest, user, len)?;
        let region = Arc::new(region.with_alarm(Arc::clone(&self.alarm)));
        let memory = memory.with(Arc::clone(&region))?;
        self.log.wanted(self.features, &memory)?;
        let failed = |source| Refusal::Machine {
            doing: "announce a memory region to the disk",
            source,
        };
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

    /// Ends the session: everything in flight has ended, and nothing of it is left, when this returns.
    pub fn end(&mut self) {
        for index in 0..self.vrings.len() {
            let index = u32::try_from(index).expect("queues have small numbers");
            self.stop(index).expect("these queues exist");
        }
        if let Err(error) = self.device.disk().release() {
            tracing::error!(disk = self.device.options().name, %error, "the disk is kept: nobody else may use it");
        }
        for (number, open) in self.shares.iter_mut().enumerate() {
            if std::mem::take(open) {
                let (done, is_done) = crossbeam_channel::bounded(1);
                self.workers.get(number).send(Command::Close {
                    session: self.id,
                    done,
                });
                // Disconnected only when the worker is gone, and its channels with it.
                let _ = is_done.recv();
            }
        }
        let memory = std::mem::take(&mut self.memory);
        self.forget_regions(memory.regions());
    }

    fn config(&self) -> Config {
        let direct = self.features != 0 && self.features & feature::INDIRECT_DESC == 0;
        let smallest = || self.vrings.iter().filter_map(|vring| vring.size).min();
        let options = self.device.options();
        let context = config::Context {
            num_queues: options.num_queues,
            queue_size: options.queue_size,
            smallest_direct_ring: direct.then(smallest).flatten(),
            cache: self.cache.shown(),
        };
        config::config(&self.device.disk().geometry(), &context)
    }
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// Deprecated by the protocol, which lets a back end ignore it.
    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(Refusal::NotOffered("RESET_DEVICE").into())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(config::features(&self.device.disk().geometry()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !config::features(&self.device.disk().geometry());
        if unknown != 0 {
            return Err(Refusal::Features(unknown).into());
        }
        if features == self.features {
            return Ok(());
        }
        tracing::debug!(
            features = format_args!("{features:#x}"),
            "features accepted"
        );
        Ok(self.at_rest(|session| {
            session.features = features;
            Ok(())
        })?)
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.at_rest(|session| {
            let old = std::mem::take(&mut session.memory);
            session.forget_regions(old.regions());
            let mut memory = Memory::default();
            for (region, file) in regions.iter().zip(files) {
                memory = session.add_region(&memory, region, file)?;
                session.memory = Arc::new(memory.clone());
            }
            Ok(())
        })?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let most = self.device.options().queue_size;
        let (vring, _) = self.vring(index)?;
        vring.must_rest("size")?;
        let size = u16::try_from(num)
            .ok()
            .filter(|size| size.is_power_of_two() && *size <= most);
        let index = u16::try_from(index).expect("checked by `vring`");
        vring.size = Some(size.ok_or(Refusal::RingSize {
            index,
            size: num,
            most,
        })?);
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let addresses = Addresses {
            descriptors: descriptor,
            driver: available,
            device: used,
            log: flags
                .contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG)
                .then_some(log),
        };
        let (vring, _) = self.vring(index)?;
        let moved = vring.addresses.replace(addresses) != Some(addresses);
        if moved && vring.running() {
            self.stop(index)?;
            self.start(index)?;
        }
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let (vring, _) = self.vring(index)?;
        vring.must_rest("base")?;
        // The lower half of the word, for a split ring.
        vring.base = u16::try_from(base & 0xffff).expect("masked");
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.retire(index)?;
        let (vring, _) = self.vring(index)?;
        // It runs again once it is given a kick again.
        vring.kick = None;
        vring.call = None;
        Ok(VhostUserVringState::new(index, u32::from(vring.base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        notifier::check(index, Use::Kick, fd.as_ref())?;
        let kick = Kick::new(fd, &self.alarm)?;
        if matches!(kick, Kick::Poll)
            && let Some(Admitted { withheld }) = self.device.lines().kicks.admits()
        {
            tracing::warn!(
                queue = index,
                withheld,
                "the frontend sends no kicks: this queue's worker will not sleep"
            );
        }
        self.stop(u32::from(index))?;
        let others = (0..).zip(&self.vrings).filter(|(at, _)| *at != index);
        if let Some((other, _)) = { others }.find(|(_, vring)| vring.shares_pipe(&kick)) {
            return Err(Refusal::SharedPipe { index, other }.into());
        }
        let (vring, _) = self.vring(u32::from(index))?;
        vring.kick = Some(kick);
        Ok(self.start(u32::from(index))?)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        notifier::check(index, Use::Call, fd.as_ref())?;
        let session = self.id;
        let (vring, worker) = self.vring(u32::from(index))?;
        vring.call = fd;
        if vring.running() {
            let call = vring.call()?;
            let (done, is_done) = crossbeam_channel::bounded(1);
            let index = u16::from(index);
            worker.send(Command::SetCall {
                session,
                index,
                call,
                done,
            });
            let _ = is_done.recv();
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        notifier::check(index, Use::Error, fd.as_ref())?;
        let (vring, _) = self.vring(u32::from(index))?;
        vring.error = fd;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_protocol_features()?.bits();
        match features & !offered {
            0 => {
                self.protocol = features;
                Ok(())
            }
            unknown => Err(Refusal::Features(unknown).into()),
        }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(u64::from(self.device.options().num_queues))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let (vring, _) = self.vring(index)?;
        vring.enabled = enable;
        let changed = if enable {
            self.start(index)
        } else {
            self.retire(index)
        };
        Ok(changed?)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        self.cache.is_read(offset, size);
        Ok(config::window(&self.config(), offset, size))
    }

    fn set_config(
        &mut self,
        offset: u32,
        bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        let at_cache = config::local(offset) as usize == Config::WRITEBACK_OFFSET;
        let cache = match bytes {
            [byte] if at_cache && self.features & feature::CONFIG_WCE != 0 => Cache::parse(*byte),
            _ => None,
        };
        let cache = cache.ok_or_else(|| Refusal::Config {
            offset,
            bytes: bytes.to_vec(),
        })?;
        self.cache.switch(cache, self.inflight.as_ref());
        if let Some(Admitted { withheld }) = self.device.lines().cache.admits() {
            let disk = &self.device.options().name;
            tracing::info!(disk, ?cache, withheld, "the driver switched the cache mode");
        }
        Ok(())
    }

    fn set_backend_req_fd(&mut self, backend: Backend) {
        self.backend = Some(backend);
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(Refusal::NotOffered("GPU_SET_SOCKET").into())
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Refusal::NotOffered("GET_SHARED_OBJECT").into())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Ok(Inflight::create(wanted, self.device.options())?)
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let inflight = Inflight::map(given, file, self.device.options()).map_err(Refusal::from)?;
        let inflight = inflight.with_alarm(&self.alarm);
        Ok(self.at_rest(|session| {
            session.inflight = Some(inflight);
            Ok(())
        })?)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        // Nothing that is in flight moves: the new table holds all that the old one holds.
        self.memory = Arc::new(self.add_region(&self.memory, region, file)?);
        for (number, _) in self.shares.iter().enumerate().filter(|(_, open)| **open) {
            let (done, is_done) = crossbeam_channel::bounded(1);
            let memory = Arc::clone(&self.memory);
            self.workers.get(number).send(Command::SetMemory {
                session: self.id,
                memory,
                done,
            });
            let _ = is_done.recv();
        }
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, user, len) = (region.guest_phys_addr, region.user_addr, region.memory_size);
        Ok(self.at_rest(|session| {
            let (memory, region) = session.memory.without(guest, user, len)?;
            session.memory = Arc::new(memory);
            session.device.disk().unmap(&region);
            Ok(())
        })?)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(Refusal::NotOffered("SET_DEVICE_STATE_FD").into())
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Refusal::NotOffered("CHECK_DEVICE_STATE").into())
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Refusal::NotOffered("GET_SHMEM_CONFIG").into())
    }

    /// Once it is answered, nothing is logged anywhere else: the frontend collects the old log then.
    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let log = Log::map(log, file, &self.alarm)?;
        Ok(self.at_rest(|session| {
            session.log = log;
            Ok(())
        })?)
    }
}
