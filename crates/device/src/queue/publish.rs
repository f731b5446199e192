//! How completions go out.
//!
//! A driver that polls is shown them a few at a time, which costs a store. One that sleeps is called while as much
//! is left to do as it needs to wake up ([`LeadTime`]), so that neither waits for the other; sooner where much has
//! ended already.

use std::time::Instant;

use pollux_ring::{DeviceEnd, Notify};

use super::lead_time::LeadTime;
use super::{Queue, Setup};
use crate::notify::Call;
use crate::tuning::Calls;

/// How many requests that ended at once are staged before the driver sees them: it works on these
/// while the device copies the next.
const SHOW_EVERY: u16 = 8;

/// A driver is called early once so much has ended: each 4 KiB of a request's data are worth 1, and so is one of less.
const WORTH_A_CALL: u64 = 128;

/// Is a driver to be called with so many chains left to do?
#[inline]
fn is_time_to_call(left: u16, lead: &LeadTime, worth: u64) -> bool {
    left <= lead.requests() || worth >= WORTH_A_CALL
}

impl Queue {
    /// Shows the driver what is staged once that is enough, with `left` chains still to be done in this turn; calls
    /// it if it is time for that.
    #[inline]
    pub(super) fn show_some(&mut self, left: u16) {
        if !self.shows || self.unpublished.hidden < SHOW_EVERY {
            return;
        }
        if is_time_to_call(left, &self.lead_time, self.unpublished.worth) {
            self.publish();
        } else {
            self.show(DeviceEnd::show);
        }
    }

    /// Shows the driver what is staged, and calls it if it asked for that, at once or when it is quiet
    /// ([`Deferral`](super::deferral)).
    #[inline]
    pub fn publish(&mut self) {
        if !self.staged() {
            return;
        }
        let worth = std::mem::take(&mut self.unpublished.worth);
        let Some(notify) = self.show(DeviceEnd::publish) else {
            return;
        };
        if self.deferral.defers() {
            self.deferred_worth += worth;
            let is_over = self.deferral.is_over(Instant::now(), true);
            if is_over || self.deferred_worth >= WORTH_A_CALL {
                self.release();
            }
        } else if notify == Notify::Needed && self.setup.call.is_some() {
            self.deferred_worth = worth;
            // The worker does not poll a queue that kicks, and leaves it alone when it sleeps: nothing would end a
            // wait.
            let kicks = self.setup.ring.is_armed();
            let may_wait = self.calls != Calls::AtOnce && !kicks && worth < WORTH_A_CALL;
            if !may_wait || self.deferral.is_made(Instant::now()) {
                self.lead_time.call();
                self.call();
            } else {
                self.lead_time.wait();
            }
        } else {
            self.deferral.restart();
            self.setup.stats.calls_suppressed.add(1);
        }
    }

    /// Makes the call that waits, if there is one.
    #[inline]
    pub fn release(&mut self) {
        if self.deferral.release() {
            self.call();
        }
    }

    fn call(&mut self) {
        self.deferral.restart();
        if let Some(call) = &self.setup.call {
            call.call();
            self.setup.stats.calls_sent.add(1);
        }
    }

    /// Has `shows` store the used index. `None`: the session is lost, and nothing was published. That is known only
    /// here, after all transfers of what is published have ended.
    #[inline]
    fn show<R>(&mut self, shows: impl FnOnce(&mut DeviceEnd) -> R) -> Option<R> {
        if self.setup.is_lost() {
            return None;
        }
        let Setup {
            ring,
            record,
            dirty,
            alarm,
            ..
        } = &mut self.setup;
        let show = |ring: &mut DeviceEnd| {
            let answer = shows(ring);
            if let Some(dirty) = dirty {
                dirty.used_ring();
            }
            answer
        };
        let answer = match record {
            None => show(ring),
            // The used ring or the log may be what was lost just now: then the driver may not have seen it.
            Some(record) => record.publish(|| {
                let answer = show(ring);
                (answer, (!alarm.is_rung()).then(|| ring.used()))
            }),
        };
        let hidden = std::mem::take(&mut self.unpublished.hidden);
        let together = &self.setup.stats.completions_per_publish;
        together.record(hidden.into());
        self.deferral.shown(hidden);
        self.observer.shown();
        Some(answer)
    }

    /// A poll has found no chains.
    #[inline]
    pub(super) fn found_none(&mut self) {
        self.setup.stats.turns_idle.add(1);
        self.call_in_time(false);
        if self.free.len() == self.slots.len() {
            self.lead_time.ran_dry();
        }
    }

    /// Makes the call that waits, if its time has come after a poll that has found chains, or none.
    #[inline]
    pub(super) fn call_in_time(&mut self, came: bool) {
        if self.deferral.defers() && self.deferral.is_over(Instant::now(), came) {
            self.release();
        }
    }

    /// Is there anything staged that is not published?
    #[inline]
    pub fn staged(&self) -> bool {
        self.setup.ring.staged() > 0
    }

    /// The used ring was written.
    #[inline]
    pub(super) fn log_ring(&self) {
        if let Some(dirty) = &self.setup.dirty {
            dirty.used_ring();
        }
    }

    /// Uses `call` from now on. A descriptor that is newly installed is called once: what was
    /// published before it came may be unseen.
    pub fn set_call(&mut self, call: Option<Call>) {
        self.setup.call = call;
        self.deferral.release();
        self.call();
    }
}

#[cfg(test)]
mod tests;
