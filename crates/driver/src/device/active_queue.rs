//! A queue that runs: its memory, its descriptors, its number at the device. It stops when it is dropped.

use std::io;
use std::sync::Arc;

use pollux_disk::WaitPoint;
use pollux_memory::eventfd;

use crate::connection::queues::QueueFds;
use crate::counters::Counts;
use crate::device::Device;
use crate::device::holders::Holder;
use crate::device::rings::Rings;
use crate::notify::call::Call;
use crate::notify::doorbell::Doorbell;
use crate::notify::shared_fd::SharedFd;

/// A running queue of a device.
#[derive(Debug)]
pub struct ActiveQueue {
    device: Arc<Device>,
    index: u16,
    doorbell: Doorbell,
    call: Arc<Call<SharedFd>>,
    counts: Arc<Counts>,
}

impl ActiveQueue {
    /// Starts queue `index`, which the caller alone has taken.
    ///
    /// # Errors
    ///
    /// When the machine lacks something: then others may take it again. When the server refuses: how
    /// far it has come is not known, so the queue is not used until another server has taken its place.
    pub fn start(device: &Arc<Device>, index: u16) -> io::Result<Self> {
        let prepared = Self::prepare(device, index);
        let (rings, fds) =
            prepared.inspect_err(|_| device.holders().give_back(index, Holder::Nobody))?;
        device.start(index, &fds, Arc::new(rings))?;
        let counts = Arc::clone(device.counts(index));
        Ok(Self {
            device: Arc::clone(device),
            index,
            doorbell: Doorbell::new(fds.kick, Arc::clone(&counts)),
            call: fds.call,
            counts,
        })
    }

    /// The memory and the descriptors of a queue.
    fn prepare(device: &Arc<Device>, index: u16) -> io::Result<(Rings, QueueFds)> {
        eventfd::prepare()?;
        let kick = Arc::new(SharedFd::new()?);
        let call = Arc::new(Call::new(
            SharedFd::new()?,
            Arc::clone(device.counts(index)),
        ));
        Ok((device.new_rings()?, QueueFds { kick, call }))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// What kicks it.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// What the device calls.
    pub fn call(&self) -> &Call<SharedFd> {
        &self.call
    }

    /// Calls, and the loss of the device, end the sleep at `point` from now on.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl` says.
    pub fn watched_by(&self, point: &WaitPoint) -> io::Result<()> {
        self.device.with(self.index, |one| one.watched_by(point))
    }

    /// Takes [`ActiveQueue::watched_by`] back.
    pub fn unwatched_by(&self, point: &WaitPoint) {
        self.device.with(self.index, |one| one.unwatched_by(point));
    }

    /// What is counted into.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for ActiveQueue {
    fn drop(&mut self) {
        // The answer comes when everything in flight has ended: after it nothing is written to the rings, nor
        // to the memory of a request without an owner.
        self.device.stop(self.index);
    }
}
