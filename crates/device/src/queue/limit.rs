//! How a queue keeps to the limits of its disk.
//!
//! A request that has to wait stays in the ring, as if it had not come: it is in no record, and a queue that stops does
//! not wait for it. Until its tokens are there the queue is not polled, and its worker sleeps if there is nothing else
//! to do.

use std::time::{Duration, Instant};

use pollux_blk::Status;

use super::parse::Parsed;
use super::{Queue, State};
use crate::limits::{Flow, Verdict};

impl Queue {
    /// Is the queue to be left alone in this turn?
    #[inline]
    pub(super) fn waits_for_tokens(&mut self) -> bool {
        let stats = &self.setup.stats;
        let ended = || stats.throttled_time.end(Instant::now());
        self.throttle.waits(ended)
    }

    /// Has `request`, the next one, to stay in the ring? Its tokens are taken in either case.
    ///
    /// What moves no data, and what is refused anyway, is free: flushes make an end of what was counted before.
    #[cold]
    pub(super) fn must_wait(&mut self, request: &Result<Parsed, Status>) -> bool {
        let (flow, bytes) = match request {
            Ok(Parsed::Read { bytes, .. }) => (Flow::Read, *bytes),
            Ok(Parsed::Write { bytes, .. }) => (Flow::Write, *bytes),
            Ok(Parsed::Discard | Parsed::WriteZeroes) => (Flow::Write, 0),
            Ok(Parsed::Flush | Parsed::GetId) | Err(_) => return false,
        };
        let waits = self.throttle.admits(flow, bytes) == Verdict::Waits;
        if waits {
            self.setup.stats.throttled.add(1);
            self.setup.stats.throttled_time.begin(Instant::now());
        }
        waits
    }

    /// Does the queue wait for tokens, and for nothing else?
    #[inline]
    pub fn only_waits_for_tokens(&self) -> bool {
        self.throttle.is_waiting()
            && self.state == State::Running
            && self.in_flight() == 0
            && !self.resumes()
    }

    /// How long it goes on waiting for tokens; `None` if it does not.
    pub fn throttled_for(&self) -> Option<Duration> {
        self.throttle
            .remains()
            .filter(|_| self.state == State::Running)
    }
}
