//! How queues start and stop, and what each is given for the next server.

use std::io;
use std::sync::Arc;

use pollux_threads::lock;

use super::Device;
use crate::connection::queues::QueueFds;
use crate::device::holders::Holder;
use crate::device::queue_record::QueueRecord;
use crate::device::rings::Rings;
use crate::error::Refusal;
use crate::notify::shared_fd::SharedFd;

impl Device {
    /// Starts queue `index`, to be woken by `fds`. While the server is away there is no answer: it is started
    /// once it is back.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the machine lacks something. The queue is given back.
    pub fn start(&self, index: u16, fds: &QueueFds, rings: Arc<Rings>) -> Result<(), Refusal> {
        let _turnover = lock(&self.turnover);
        let record = QueueRecord::new(index, fds.clone(), Arc::clone(&rings), self.epoch());
        lock(&self.running).push(record);
        let Err(refusal) = self.connection.start_queue(index, fds, &rings) else {
            return Ok(());
        };
        if self.connection.is_away(&refusal) {
            return Ok(());
        }
        let QueueRecord { epoch, .. } = self.forget(index);
        self.keep(epoch, rings);
        let holder = match refusal {
            // It was not asked to the end, or will not remember.
            Refusal::System { .. } => Holder::Nobody,
            _ => Holder::Stuck,
        };
        self.holders.give_back(index, holder);
        Err(refusal)
    }

    /// Stops queue `index`, and gives it back.
    pub fn stop(&self, index: u16) {
        let _turnover = lock(&self.turnover);
        let mut running = self.forget(index);
        self.holders.give_back(index, self.stopped(&running));
        if let Some((attempt, spare)) = running.take_spare() {
            self.kept.put_spare(attempt, spare);
        }
        self.keep(running.epoch, running.rings);
    }

    /// Has the server stop a queue that ran; what state is it in then?
    fn stopped(&self, running: &QueueRecord) -> Holder {
        let index = running.index;
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

    /// Fresh rings of queue `index`, for the server of this `attempt`.
    pub(super) fn prepare(&self, attempt: u64, index: u16) -> io::Result<(QueueFds, Arc<Rings>)> {
        let fresh = [SharedFd::fresh()?, SharedFd::fresh()?];
        let (old, watched, spare) = self.with(index, |one| {
            let (old, watched) = one.renew_fds(fresh);
            (old, watched, one.take_spare())
        });
        // Neither of these under the list's lock: a thread that polls a queue may want that.
        drop(old);
        if let Some((told, spare)) = spare {
            self.kept.put_spare(told, spare);
        }
        watched?;
        let rings = match self.kept.take_spare() {
            // A server that was gone soon may have written to them. One that only hung could still do so: the last one
            // was told of others.
            Some(rings) => {
                rings.clear();
                rings
            }
            None => Arc::new(self.new_rings()?),
        };
        Ok(self.with(index, |one| {
            one.put_spare(attempt, Arc::clone(&rings));
            (one.fds.clone(), rings)
        }))
    }

    fn forget(&self, index: u16) -> QueueRecord {
        let mut running = lock(&self.running);
        let at = running.iter().position(|one| one.index == index);
        running.swap_remove(at.expect("it runs"))
    }

    /// What is to be done to the record of queue `index`, which runs.
    pub fn with<T>(&self, index: u16, what: impl FnOnce(&mut QueueRecord) -> T) -> T {
        let mut running = lock(&self.running);
        let one = running.iter_mut().find(|one| one.index == index);
        what(one.expect("it runs"))
    }

    /// The rings on which the owner of queue `index` goes on from now on, and which epoch that is.
    pub fn claim(&self, index: u16) -> (u64, Arc<Rings>) {
        self.with(index, QueueRecord::claim)
    }
}
