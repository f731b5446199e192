//! How completions go out.
//!
//! A driver that looks is shown them a few at a time, which costs a store. One that sleeps is called while as much
//! is left to do as it needs to wake up ([`Lead`]), so that neither waits for the other; sooner where much has ended
//! already.

use std::time::Instant;

use pollux_ring::{DeviceEnd, Notify};

use super::lead::Lead;
use super::{Queue, State};
use crate::call::Call;
use crate::prices;

/// How many requests that ended at once are staged before the driver sees them: it works on these
/// while the device copies the next.
const SHOW_EVERY: u16 = 8;

/// A driver is called early once so much has ended: each 4 KiB of a request's data are worth 1, and so is one of less.
const WORTH_A_CALL: u64 = 128;

/// The price of a call is measured by one of so many: two looks at the clock would add a tenth to one that wakes
/// nobody.
const PRICED_EVERY: u64 = 16;

/// What has ended and is not, or not quite, published.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// Requests that the driver has not been shown.
    hidden: u16,
    /// What all is worth for which no call was made.
    worth: u64,
}

impl Unpublished {
    /// A request with so many bytes of data was staged.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.hidden += 1;
        self.worth += bytes.div_ceil(4096).max(1);
    }
}

/// Is a driver to be called with so many chains left to do?
#[inline]
fn is_time_to_call(left: u16, lead: &Lead, worth: u64) -> bool {
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
        if is_time_to_call(left, &self.lead, self.unpublished.worth) && !self.call_waits() {
            self.publish();
        } else {
            self.show(DeviceEnd::show);
        }
    }

    /// All that was seen of this queue is done. If its driver has brought so much meanwhile that a call can wait for it,
    /// it is shown what has ended, and the turn goes on.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        let on = self.shows && self.state == State::Running && self.staged() && self.call_waits();
        if on {
            self.show(DeviceEnd::show);
        }
        on
    }

    /// Has the driver brought so much meanwhile that a call can wait for it? A ring that is found to be broken is for
    /// the next look to tell.
    #[inline]
    fn call_waits(&mut self) -> bool {
        self.lead.waits()
            && self
                .setup
                .ring
                .look()
                .is_ok_and(|left| !is_time_to_call(left, &self.lead, self.unpublished.worth))
    }

    /// Shows the driver what is staged, and calls it if it asked for that.
    #[inline]
    pub fn publish(&mut self) {
        if !self.staged() {
            return;
        }
        self.lead
            .brings(std::mem::take(&mut self.unpublished.worth));
        let notify = self.show(DeviceEnd::publish);
        let stats = &self.setup.stats;
        match (notify, &self.setup.call) {
            (Notify::Needed, Some(call)) => {
                self.lead.call();
                if stats.calls_sent.get().is_multiple_of(PRICED_EVERY) {
                    let before = Instant::now();
                    call.call();
                    self.lead.priced(prices::called(before.elapsed()));
                } else {
                    call.call();
                }
                stats.calls_sent.add(1);
            }
            _ => stats.calls_suppressed.add(1),
        }
    }

    /// Has `shows` store the used index.
    #[inline]
    fn show<R>(&mut self, shows: impl FnOnce(&mut DeviceEnd) -> R) -> R {
        let ring = &mut self.setup.ring;
        let answer = match &mut self.setup.record {
            None => shows(ring),
            Some(record) => record.publish(|| (shows(ring), ring.used())),
        };
        self.log_ring();
        let hidden = std::mem::take(&mut self.unpublished.hidden);
        let together = &self.setup.stats.completions_per_publish;
        together.record(hidden.into());
        answer
    }

    /// A look has found no chains.
    #[inline]
    pub(super) fn found_none(&mut self) {
        self.setup.stats.turns_idle.add(1);
        if self.free.len() == self.slots.len() {
            self.lead.ran_dry();
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
        if let Some(call) = &call {
            call.call();
            self.setup.stats.calls_sent.add(1);
        }
        self.setup.call = call;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_turn_is_one_call_and_one_of_large_requests_more() {
        for (data, expected) in [(0, 1), (4096, 1), (128 << 10, 8)] {
            let (mut unpublished, mut calls) = (Unpublished::default(), 0);
            let mut left = crate::queue::BUDGET;
            let mut armed = true;
            while left > 0 {
                (0..SHOW_EVERY).for_each(|_| unpublished.add(data));
                left -= SHOW_EVERY;
                if is_time_to_call(left, &Lead::default(), unpublished.worth) {
                    unpublished.worth = 0;
                    // Small requests are many before the driver runs; large ones it waits for one by one.
                    calls += u32::from(armed);
                    armed = data > 4096;
                }
            }
            assert_eq!(calls, expected, "{data} bytes each");
        }
    }
}
