//! What happens when the server is gone, has changed its disk, or is back.

use std::sync::atomic::Ordering;

use pollux_blk::{Config, feature};
use pollux_disk::{Access, Admitted, Event};
use pollux_threads::lock;

use super::Device;
use crate::connection::backoff::{Failed, Progress};
use crate::connection::monitor::Observer;
use crate::connection::regions::Sending;
use crate::connection::session::Opened;
use crate::device::facts::Facts;
use crate::device::queue_record::QueueRecord;
use crate::error::{ConnectError, Difference, Lost, Refusal};

impl Observer for Device {
    fn changed(&self, config: &Config) {
        let facts = self.facts();
        match facts.followed_by(config) {
            Ok(next) => self.learn(next),
            Err(fault) => {
                if let Some(Admitted { withheld }) = self.nonsense.admits() {
                    tracing::warn!(%fault, withheld, "the disk says nonsense of itself, and counts as unchanged");
                }
            }
        }
    }

    fn away(&self) {
        self.absences.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(&self, why: Lost) {
        self.lose(why);
        self.wake_sleepers();
        self.events().tell(Event::Lost);
    }

    /// The new server is told of the memory and gets every queue that runs, on fresh rings; only once all
    /// of that has worked do their owners hear of it. Until then it can go wrong as often as it likes.
    fn back(&self, opened: Opened) -> Result<(), Failed> {
        let turnover = lock(&self.turnover);
        let facts = self.facts();
        let next = self.compare(&facts, &opened).map_err(different)?;
        self.connection()
            .install(opened)
            .map_err(|refusal| match refusal {
                Refusal::NoSlot { .. } => different(Difference::Memory),
                refusal => refusal.into(),
            })?;
        let attempt = self.kept.begin_attempt();
        let queues: Vec<_> = lock(&self.running).iter().map(|one| one.index).collect();
        for index in queues {
            self.start_again(attempt, index)?;
        }
        if let Some(next) = &next {
            self.set_facts(next.clone());
        }
        self.advance();
        drop(turnover);
        self.wake_sleepers();
        if next.is_some() {
            self.events().tell(Event::Changed);
        }
        Ok(())
    }

    fn progress(&self) -> Progress {
        Progress {
            ended: self.ended(),
            is_waited_for: lock(&self.running).iter().any(QueueRecord::has_requests),
        }
    }
}

impl Device {
    /// The device says `facts` of itself from now on.
    fn learn(&self, facts: Facts) {
        self.set_facts(facts);
        self.events().tell(Event::Changed);
    }

    /// Has queue `index` run by the server that is back, on fresh rings.
    fn start_again(&self, attempt: u64, index: u16) -> Result<(), Failed> {
        let (fds, rings) = self.prepare(attempt, index).map_err(Failed::for_now)?;
        let started = self.connection().start_queue(index, &fds, &rings);
        started.map_err(Failed::from)
    }

    /// A poll of a queue goes on at the next server from now on.
    fn advance(&self) {
        let mut running = lock(&self.running);
        let epoch = self.epoch();
        // Unless the device was lost meanwhile, which is for good.
        let Some(next) = epoch.checked_add(1) else {
            return;
        };
        running.iter_mut().for_each(|one| one.advance(next));
        let (set, unset) = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = self.epoch.compare_exchange(epoch, next, set, unset);
        self.holders.free_stuck();
        self.kept.advance(next);
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    /// Can the disk of that server take the place of what was there before? What it says of itself, if that
    /// is something new.
    fn compare(&self, facts: &Facts, opened: &Opened) -> Result<Option<Facts>, Difference> {
        let agreed = &opened.session.agreed;
        let before = (self.connection().features(), self.queues());
        offers(
            before,
            (agreed.features, agreed.queues),
            facts.geometry.access,
        )?;
        // Buffers are registered one after the other from servers that can, while requests are in flight.
        let is_sent_whole = matches!(agreed.memory, Sending::Whole { .. });
        if is_sent_whole && !self.pool.is_of_one() {
            return Err(Difference::Memory);
        }
        facts.compared_with(&Facts::new(
            agreed.features,
            &opened.config,
            self.options(),
        )?)
    }
}

impl Facts {
    /// What it says of itself `now`, if that is something new and requests that were made for what it said
    /// before can be handed to it.
    fn compared_with(&self, now: &Self) -> Result<Option<Self>, Difference> {
        let (before, after) = (&self.geometry, &now.geometry);
        if before.block != after.block {
            let (before, now) = (before.block, after.block);
            return Err(Difference::Block { before, now });
        }
        if before.bytes > after.bytes {
            let (before, now) = (before.bytes, after.bytes);
            return Err(Difference::Smaller { before, now });
        }
        if !self.limits.fit_in(&now.limits) {
            return Err(Difference::Requests);
        }
        let is_new = before.bytes != after.bytes;
        Ok(is_new.then(|| Self {
            geometry: pollux_disk::Geometry {
                bytes: after.bytes,
                ..self.geometry
            },
            limits: self.limits,
            has_flush: self.has_flush,
            generation: self.generation + 1,
        }))
    }
}

/// Does a server with the features and queues of `now` offer what one with those of `before` did, for requests of
/// that `access`?
///
/// By the name that a user knows: a read-only disk lacks features, too, as does one with a single queue.
fn offers(before: (u64, u16), now: (u64, u16), access: Access) -> Result<(), Difference> {
    if now.0 & feature::RO != 0 && access == Access::ReadWrite {
        return Err(Difference::ReadOnly);
    }
    if now.1 < before.1 {
        let (before, now) = (before.1, now.1);
        return Err(Difference::Queues { before, now });
    }
    match before.0 & !now.0 & !feature::RO {
        0 => Ok(()),
        missing => Err(Difference::Features { missing }),
    }
}

fn different(difference: Difference) -> Failed {
    Failed::ForGood(Lost::Changed { difference })
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Lost(lost) if !lost.may_pass() => Self::ForGood(lost),
            refusal => Self::for_now(refusal),
        }
    }
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Self {
        match error {
            // A server that lies is not asked again.
            ConnectError::Lost {
                source: lost @ Lost::Protocol { .. },
                ..
            } => Self::ForGood(lost),
            error => Self::for_now(error),
        }
    }
}

#[cfg(test)]
mod tests;
