//! What each message of the protocol does.

use std::fs::File;
use std::sync::Arc;

use pollux_blk::{Cache, Config, feature};
use pollux_disk::Admitted;
use pollux_memory::Memory;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Backend, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use super::config;
use super::dirty::Log;
use super::notifier::Use;
use super::refusal::Refusal;
use super::vring::{Addresses, Kick, Vring};
use super::{MAX_REGIONS, Session};
use crate::inflight::Inflight;
use crate::worker::{Command, Notifier};
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
        if (features ^ self.features) == feature::LOG_ALL {
            self.features = features;
            return Ok(self.log_anew(0..self.vrings.len())?);
        }
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
            // Before the new ones, which may be as large.
            drop(old);
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
        let before = vring.addresses.replace(addresses);
        if !vring.running() || before == Some(addresses) {
            return Ok(());
        }
        let log = addresses.log;
        if before.map(|before| Addresses { log, ..before }) == Some(addresses) {
            let at = index as usize;
            return Ok(self.log_anew(at..at + 1)?);
        }
        self.stop(index)?;
        Ok(self.start(index)?)
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
        self.check(index, Use::Kick, fd.as_ref())?;
        let kick = Kick::new(fd)?;
        if matches!(kick, Kick::Poll)
            && let Some(Admitted { withheld }) = self.device.log_quotas().kicks.admits()
        {
            tracing::warn!(
                disk = self.device.options().name,
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
        self.check(index, Use::Call, fd.as_ref())?;
        let session = self.id;
        let (vring, worker) = self.vring(u32::from(index))?;
        Ok(vring.set_notifier(worker, session, fd, Notifier::Call)?)
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.check(index, Use::Error, fd.as_ref())?;
        let session = self.id;
        let (vring, worker) = self.vring(u32::from(index))?;
        Ok(vring.set_notifier(worker, session, fd, Notifier::Error)?)
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
                let config = features & VhostUserProtocolFeatures::CONFIG.bits() != 0;
                self.backend.wants_config_changes(config);
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
        // Once queues have run, a frontend that reads more than one byte wants the size, and shows no more of it. Drivers
        // read the mode alone, and some frontends pass each read on.
        if size == 1 || !self.vrings.iter().any(Vring::has_run) {
            self.cache.is_read(offset, size);
        }
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
        if let Some(Admitted { withheld }) = self.device.log_quotas().cache.admits() {
            let disk = &self.device.options().name;
            tracing::info!(disk, ?cache, withheld, "the driver switched the cache mode");
        }
        Ok(())
    }

    /// What `vhost` has checked is the descriptor that was offered before.
    fn set_backend_req_fd(&mut self, _backend: Backend) {
        self.backend.take_offer();
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(Refusal::NotOffered("GPU_SET_SOCKET").into())
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Refusal::NotOffered("GET_SHARED_OBJECT").into())
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let made = Inflight::create(wanted, self.device.options());
        Ok(made.map_err(Refusal::Inflight)?)
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
        for (number, _) in self.channels.iter().enumerate().filter(|(_, open)| **open) {
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
        let missed = self.features & feature::LOG_ALL != 0
            && self.log.is_none()
            && self.vrings.iter().any(Vring::has_run);
        // The one that is used no more goes last, here: a worker unmaps nothing.
        let old = std::mem::replace(&mut self.log, log);
        let told = self.log_anew(0..self.vrings.len());
        match &told {
            Err(_) => self.log = old,
            // What queues have written before there was a log.
            Ok(()) if missed => self.log.mark_all(&self.memory),
            Ok(()) => {}
        }
        Ok(told?)
    }
}
