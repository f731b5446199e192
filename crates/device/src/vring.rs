//! What a frontend has said about one queue, and the start and stop of that queue on its worker.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pollux_blk::feature;
use pollux_memory::{Alarm, DirtyPages, Memory};
use pollux_ring::{Areas, DeviceEnd, Layout, RingIndex, Suppression};

use crate::call::{Call, KickFd};
use crate::config;
use crate::device::Device;
use crate::dirty::Dirty;
use crate::inflight::Inflight;
use crate::queue::{Queue, Setup};
use crate::refusal::Refusal;
use crate::request::Rules;
use crate::tuning::Signal;
use crate::worker::{Command, SessionId};
use crate::workers::Handle;

/// Where the frontend says a ring is, in its own address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub descriptors: u64,
    pub driver: u64,
    pub device: u64,
    /// Where changes of the used ring are to be logged: its guest-physical address.
    pub log: Option<u64>,
}

/// How a queue is kicked.
#[derive(Debug)]
pub enum Kick {
    /// Through this descriptor.
    Fd(KickFd),
    /// Not at all: the device is to look.
    Poll,
}

impl Kick {
    pub fn new(file: Option<File>, alarm: &Arc<Alarm>) -> Result<Self, Refusal> {
        let Some(file) = file else {
            return Ok(Self::Poll);
        };
        let kick = KickFd::new(file.into(), alarm).map_err(|source| Refusal::Machine {
            doing: "use the kick descriptor",
            source,
        })?;
        Ok(Self::Fd(kick))
    }
}

/// What a queue shares with its session.
pub struct Context<'a> {
    pub session: SessionId,
    pub device: &'a Device,
    pub memory: &'a Arc<Memory>,
    pub features: u64,
    pub writeback: &'a Arc<AtomicBool>,
    /// Where queues log what they write to guest memory, if they are to.
    pub log: Option<&'a Arc<DirtyPages>>,
    pub signal: Signal,
    /// `None`: the frontend keeps no record of what is in flight.
    pub inflight: Option<&'a Inflight>,
}

/// One queue as the frontend describes it.
#[derive(Debug)]
pub struct Vring {
    index: u16,
    pub size: Option<u16>,
    pub addresses: Option<Addresses>,
    /// The next available index.
    pub base: u16,
    pub kick: Option<Kick>,
    pub call: Option<File>,
    pub error: Option<File>,
    pub enabled: bool,
    running: bool,
    /// The session's, for descriptors that block.
    alarm: Arc<Alarm>,
}

impl Vring {
    pub fn new(index: u16, alarm: &Arc<Alarm>) -> Self {
        Self {
            index,
            size: None,
            addresses: None,
            base: 0,
            kick: None,
            call: None,
            error: None,
            enabled: false,
            running: false,
            alarm: Arc::clone(alarm),
        }
    }

    pub fn running(&self) -> bool {
        self.running
    }

    /// Fails while the queue runs, for what cannot change then.
    pub fn must_rest(&self, what: &'static str) -> Result<(), Refusal> {
        if self.running {
            Err(Refusal::Running {
                index: self.index,
                what,
            })
        } else {
            Ok(())
        }
    }

    /// Is it enabled, was given a kick, and does not run yet?
    pub fn can_start(&self, features: u64) -> bool {
        let enabled = self.enabled || features & feature::PROTOCOL_FEATURES == 0;
        enabled && self.kick.is_some() && !self.running
    }

    /// Runs the queue on `worker`, if it can start.
    pub fn start(&mut self, worker: &Handle, context: &Context<'_>) -> Result<(), Refusal> {
        let can_start = self.can_start(context.features);
        let Some(kick) = self.kick.as_ref().filter(|_| can_start) else {
            return Ok(());
        };
        let geometry = context.device.disk().geometry();
        let queue_size = context.device.options().queue_size;
        let kick = match kick {
            Kick::Fd(fd) => Some(duplicate(fd)?),
            Kick::Poll => None,
        };
        let accepted = |bit: u64| context.features & bit != 0;
        let mut ring = self.device_end(context)?;
        let record = context
            .inflight
            .map(|inflight| inflight.record(self.index, &mut ring))
            .transpose()?;
        let setup = Setup {
            index: self.index,
            ring,
            record,
            memory: Arc::clone(context.memory),
            kick,
            call: self.call()?,
            error: self.call_through(self.error.as_ref())?,
            rules: Rules {
                geometry,
                size_max: accepted(feature::SIZE_MAX).then_some(config::SIZE_MAX),
                seg_max: accepted(feature::SEG_MAX).then(|| config::seg_max(None, queue_size)),
                max_ranges: config::MAX_RANGES,
            },
            serial: context.device.serial(),
            flush: accepted(feature::FLUSH),
            writeback: Arc::clone(context.writeback),
            dirty: context.log.map(|log| self.dirty(log)).transpose()?,
            stats: Arc::clone(context.device.stats(self.index)),
        };
        let queue = Box::new(Queue::new(setup, context.signal));
        worker.send(Command::Start {
            session: context.session,
            queue,
        });
        self.running = true;
        Ok(())
    }

    /// The call descriptor as a running queue takes it.
    pub fn call(&self) -> Result<Option<Call>, Refusal> {
        self.call_through(self.call.as_ref())
    }

    fn call_through(&self, file: Option<&File>) -> Result<Option<Call>, Refusal> {
        let failed = |source| Refusal::Machine {
            doing: "use the call descriptor",
            source,
        };
        file.map(|file| Call::new(file.try_clone()?, &self.alarm))
            .transpose()
            .map_err(failed)
    }

    fn device_end(&self, context: &Context<'_>) -> Result<DeviceEnd, Refusal> {
        let index = self.index;
        let missing = |what| Refusal::Incomplete { index, what };
        let size = self.size.ok_or(missing("its size (SET_VRING_NUM)"))?;
        let at = self
            .addresses
            .ok_or(missing("its addresses (SET_VRING_ADDR)"))?;
        let layout = Layout::of(size);
        let area = |area, address, len: usize| {
            let outside = Refusal::RingOutside {
                index,
                area,
                address,
            };
            context.memory.user_span(address, len as u64).ok_or(outside)
        };
        let descriptors = area("descriptor", at.descriptors, layout.descriptor)?;
        let driver = area("driver", at.driver, layout.driver)?;
        let device = area("device", at.device, layout.device)?;
        let areas = Areas::new(u32::from(size), descriptors, driver, device)
            .map_err(|source| Refusal::Ring { index, source })?;
        let suppression = if context.features & feature::EVENT_IDX != 0 {
            Suppression::EventIdx
        } else {
            Suppression::Flags
        };
        let indirect = context.features & feature::INDIRECT_DESC != 0;
        Ok(DeviceEnd::new(
            &areas,
            RingIndex(self.base),
            suppression,
            indirect,
        ))
    }

    fn dirty(&self, log: &Arc<DirtyPages>) -> Result<Dirty, Refusal> {
        let used_ring = self.addresses.and_then(|addresses| addresses.log);
        Dirty::new(log, used_ring, self.size.unwrap_or_default())
    }

    /// Stops the queue, if it runs: it takes nothing more, and what it has taken has ended, and is in
    /// the used ring, when this returns.
    pub fn stop(&mut self, worker: &Handle, session: SessionId) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        let (stopped, is_stopped) = crossbeam_channel::bounded(1);
        worker.send(Command::Stop {
            session,
            index: self.index,
            stopped,
        });
        loop {
            match is_stopped.recv_timeout(Duration::from_secs(10)) {
                Ok(next) => {
                    self.base = next;
                    return;
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                    tracing::warn!(
                        queue = self.index,
                        "still waiting for the disk to end the requests in flight"
                    );
                }
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn duplicate(fd: &KickFd) -> Result<KickFd, Refusal> {
    fd.try_clone().map_err(|source| Refusal::Machine {
        doing: "use the kick descriptor",
        source,
    })
}
