//! What a frontend has said about one queue, and the start and stop of that queue on its worker.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pollux_blk::feature;
use pollux_disk::Admitted;
use pollux_memory::{Alarm, DirtyPages, Memory};
use pollux_ring::{Areas, DeviceEnd, Layout, RingIndex, Suppression};

use super::cache::CacheMode;
use super::config;
use super::dirty;
use super::refusal::Refusal;
use crate::device::Device;
use crate::inflight::Inflight;
use crate::notify::{Call, KickFd};
use crate::queue::{Dirty, Pace, Queue, Rules, Setup, UsedRing};
use crate::worker::{Command, Handle, Notifier, SessionId, watch_of};

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
    Fd(Arc<KickFd>),
    /// Not at all: the device is to poll.
    Poll,
}

impl Kick {
    fn fd(&self) -> Option<&Arc<KickFd>> {
        match self {
            Self::Fd(fd) => Some(fd),
            Self::Poll => None,
        }
    }

    pub fn new(file: Option<File>) -> Result<Self, Refusal> {
        let Some(file) = file else {
            return Ok(Self::Poll);
        };
        let failed = Refusal::machine("use the kick descriptor");
        let kick = KickFd::new(file.into()).map_err(failed)?;
        Ok(Self::Fd(Arc::new(kick)))
    }
}

/// What a queue shares with its session.
pub struct Context<'a> {
    pub session: SessionId,
    pub device: &'a Device,
    pub memory: &'a Arc<Memory>,
    pub features: u64,
    pub cache: &'a CacheMode,
    /// Where queues log what they write to guest memory, if they are to.
    pub log: Option<&'a Arc<DirtyPages>>,
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
    /// Its next available index when it stopped last in this session.
    left_at: Option<u16>,
    /// The session's.
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
            left_at: None,
            alarm: Arc::clone(alarm),
        }
    }

    /// Is the queue kicked through the same pipe as `kick` says?
    pub fn shares_pipe(&self, kick: &Kick) -> bool {
        let own = self.kick.as_ref().and_then(Kick::fd);
        own.zip(kick.fd())
            .is_some_and(|(own, other)| own.is_pipe_of(other))
    }

    /// Does it start where it stopped in this session, or where no driver has been before, as far as this session knows?
    /// A driver at another index has come from elsewhere, as from a snapshot of the virtual machine.
    pub fn begins(&self, memory: &Memory) -> bool {
        let goes_on_here = self.running || self.left_at == Some(self.base);
        goes_on_here || self.base == 0 && !self.has_wrapped(memory)
    }

    /// Has its used ring held requests, so that an index of 0 is one that has wrapped? A driver clears it before it
    /// begins.
    fn has_wrapped(&self, memory: &Memory) -> bool {
        let (Some(size), Some(at)) = (self.size, self.addresses) else {
            return false;
        };
        let len = Layout::of(size).device;
        // SAFETY: `memory` is kept until this returns, and by then the span is used no more.
        let ring = unsafe { memory.user_span(at.device, len as u64) };
        ring.is_some_and(|ring| {
            let mut bytes = vec![0; len];
            ring.read(&mut bytes);
            // Without the flags and the index before the elements, and the event index behind them.
            bytes[4..len - 2].iter().any(|byte| *byte != 0)
        })
    }

    /// Has it run in this session?
    pub fn has_run(&self) -> bool {
        self.running || self.left_at.is_some()
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
        let kick = kick.fd().cloned();
        let setup = self.setup(kick.clone(), context)?;
        if let Some(kick) = kick {
            // Last, as only a queue that runs is stopped. What it reports until then is polled for when the queue
            // starts.
            let watch = watch_of(context.session, self.index);
            let watched = worker.point().watch(kick.as_fd(), watch);
            watched.map_err(|source| Refusal::Kicks {
                index: self.index,
                source,
            })?;
        }
        let queue = Box::new(Queue::new(setup, worker.tuning()));
        worker.send(Command::Start {
            session: context.session,
            queue,
        });
        self.running = true;
        Ok(())
    }

    /// What its worker needs to run it.
    fn setup(&self, kick: Option<Arc<KickFd>>, context: &Context<'_>) -> Result<Setup, Refusal> {
        let device = context.device;
        let accepted = |bit: u64| context.features & bit != 0;
        let mut ring = self.device_end(context)?;
        let record = context
            .inflight
            .map(|inflight| inflight.record(self.index, &mut ring))
            .transpose()?;
        if let Some(record) = &record {
            self.tell_of_what_was_left(record.left(), device);
        }
        Ok(Setup {
            index: self.index,
            ring,
            record,
            memory: Arc::clone(context.memory),
            alarm: Arc::clone(&self.alarm),
            kick,
            call: notifier(self.call.as_ref())?,
            error: notifier(self.error.as_ref())?,
            rules: Rules {
                geometry: device.disk().geometry(),
                bytes: Arc::clone(device.bytes()),
                size_max: accepted(feature::SIZE_MAX).then_some(config::SIZE_MAX),
                seg_max: config::seg_max(device.options().queue_size),
                max_ranges: config::MAX_RANGES,
                pace: Pace::of(device.disk().effort()),
            },
            serial: device.serial(),
            flush: accepted(feature::FLUSH),
            writeback: context.cache.for_queue(context.features),
            dirty: context.log.map(|log| self.dirty(log)).transpose()?,
            stats: Arc::clone(device.stats(self.index)),
            limiter: Arc::clone(device.limiter()),
            observation: Arc::clone(device.observation()),
            log_quotas: Arc::clone(device.log_quotas()),
            disk: device.options().name.clone(),
        })
    }

    fn tell_of_what_was_left(&self, requests: usize, device: &Device) {
        if requests > 0
            && let Some(Admitted { withheld }) = device.log_quotas().resumed.admits()
        {
            let (disk, queue) = (&device.options().name, self.index);
            tracing::info!(
                disk,
                queue,
                requests,
                withheld,
                "submitting again what was in flight"
            );
        }
    }

    /// Notifies through `file` from now on. If the queue runs, `worker` uses the old one no more when this returns.
    pub fn set_notifier(
        &mut self,
        worker: &Handle,
        session: SessionId,
        file: Option<File>,
        kind: fn(Option<Call>) -> Notifier,
    ) -> Result<(), Refusal> {
        let call = if self.running {
            notifier(file.as_ref())?
        } else {
            None
        };
        let notifier = kind(call);
        let slot = match notifier {
            Notifier::Call(_) => &mut self.call,
            Notifier::Error(_) => &mut self.error,
        };
        // It goes last, here: the last close of a socket frees what is in it, which may be much for a worker.
        let _old = std::mem::replace(slot, file);
        if self.running {
            let (done, is_done) = crossbeam_channel::bounded(1);
            worker.send(Command::SetNotifier {
                session,
                index: self.index,
                notifier,
                done,
            });
            // A worker that has panicked uses it no more either.
            let _ = is_done.recv();
        }
        Ok(())
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
            // SAFETY: the queue that is made of this keeps the table, or one that holds all of its regions
            // (`Queue::set_memory`), for as long as it has the ring.
            unsafe { context.memory.user_span(address, len as u64) }.ok_or(outside)
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

    /// Where it logs in `log`.
    pub fn dirty(&self, log: &Arc<DirtyPages>) -> Result<Dirty, Refusal> {
        let used_ring = self.addresses.and_then(|addresses| addresses.log);
        let used_ring =
            used_ring.map(|address| UsedRing::new(address, self.size.unwrap_or_default()));
        dirty::of_queue(log, used_ring)
    }

    /// Stops the queue, if it runs: it takes nothing more, and what it has taken has ended, and is in
    /// the used ring, when this returns. `disk` is what the log calls the disk.
    pub fn stop(&mut self, worker: &Handle, session: SessionId, disk: &str) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        if let Some(kick) = self.kick.as_ref().and_then(Kick::fd) {
            // The descriptor is open, and was watched when the queue started.
            let _ = worker.point().unwatch(kick.as_fd());
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
                    (self.base, self.left_at) = (next, Some(next));
                    return;
                }
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                    tracing::warn!(
                        disk,
                        queue = self.index,
                        "still waiting for the disk to end the requests in flight"
                    );
                }
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => {
                    self.left_at = Some(self.base);
                    return;
                }
            }
        }
    }
}

/// A notifier as a running queue takes it.
fn notifier(file: Option<&File>) -> Result<Option<Call>, Refusal> {
    file.map(|file| Call::new(file.try_clone()?))
        .transpose()
        .map_err(Refusal::machine("use the call or error descriptor"))
}

#[cfg(test)]
mod tests;
