//! A queue that runs: its memory, its descriptors, its number at the device. It stops when it is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_blk::feature;
use pollux_ring::Suppression;
use rustix::event::{EventfdFlags, eventfd};

use crate::connection::QueueFds;
use crate::counters::{Counters, Counts};
use crate::device::{Device, Holder};
use crate::doorbell::Doorbell;
use crate::error::Refusal;
use crate::limits::FRAME;
use crate::rings::Rings;

/// A running queue of a device.
#[derive(Debug)]
pub struct Place {
    device: Arc<Device>,
    index: u16,
    rings: Arc<Rings>,
    doorbell: Doorbell,
    call: Arc<OwnedFd>,
    counts: Arc<Counts>,
}

impl Place {
    /// Starts queue `index`, which the caller has taken and nobody else has.
    ///
    /// # Errors
    ///
    /// When the machine lacks something: then others may take it again. When the server refuses: who
    /// knows how far it has come, so nobody uses the queue any more.
    pub fn start(device: &Arc<Device>, index: u16) -> io::Result<Self> {
        let prepared = Self::prepare(device);
        let (rings, fds) = prepared.inspect_err(|_| device.give_back(index, Holder::Nobody))?;
        let (at, size) = (rings.addresses(), rings.size());
        let started = device
            .connection()
            .start_queue(index, &fds, &at, size)
            .inspect_err(|_| device.give_back(index, Holder::Stuck));
        started?;
        let counts = Arc::clone(device.counts(index));
        let call = Arc::new(fds.call);
        device.heed(index, &call);
        Ok(Self {
            device: Arc::clone(device),
            index,
            rings: Arc::new(rings),
            doorbell: Doorbell::new(fds.kick, Arc::clone(&counts)),
            call,
            counts,
        })
    }

    /// The descriptors and the memory of a queue.
    fn prepare(device: &Device) -> io::Result<(Rings, QueueFds)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fds = QueueFds {
            kick: eventfd(0, flags)?,
            call: eventfd(0, flags)?,
        };
        let connection = device.connection();
        let has = |bit| connection.features() & bit != 0;
        let suppression = if has(feature::EVENT_IDX) {
            Suppression::EventIdx
        } else {
            Suppression::Flags
        };
        let size = device.options().queue_size;
        // Room in a table for the largest request, and no more than a chain may have.
        let most = device.facts().limits.buffers + FRAME;
        let entries = u16::try_from(most).unwrap_or(size).min(size);
        let tables = has(feature::INDIRECT_DESC).then_some(entries);
        Ok((Rings::new(device.pool(), size, suppression, tables)?, fds))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Its memory.
    pub fn rings(&self) -> &Arc<Rings> {
        &self.rings
    }

    /// What kicks it.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// What the device calls.
    pub fn call(&self) -> &Arc<OwnedFd> {
        &self.call
    }

    /// What is counted into.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What it has counted. Reads the calls that have come, so **whoever may be about to sleep over
    /// them looks at the ring after this**.
    pub fn counters(&self) -> Counters {
        self.hear();
        self.counts.snapshot()
    }

    /// Reads, and counts, the calls that have come: see [`Place::counters`].
    pub fn hear(&self) {
        let mut calls = [0; 8];
        if rustix::io::read(&self.call, &mut calls).is_ok() {
            self.counts.calls.add_shared(u64::from_ne_bytes(calls));
        }
    }
}

impl Place {
    /// Stops the queue; who has it then?
    fn stop(&self) -> Holder {
        match self.device.connection().stop_queue(self.index) {
            Ok(next) => {
                self.rings.stopped(next);
                return Holder::Nobody;
            }
            Err(Refusal::Lost(why)) => self.device.lose(why),
            Err(refusal) => {
                tracing::warn!(%refusal, queue = self.index, "a queue was not stopped, and is not used again");
            }
        }
        Holder::Stuck
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.device.ignore(self.index);
        // The answer comes when everything in flight has ended: after it nobody writes to the rings, nor
        // to the memory of a request that nobody waits for any more.
        let stopped = if self.device.is_lost() {
            Holder::Stuck
        } else {
            self.stop()
        };
        self.device.give_back(self.index, stopped);
    }
}
