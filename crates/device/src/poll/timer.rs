//! How long polls take that find nothing, by looks at the clock that are made anyway.

use std::time::Duration;

/// The clock is asked in every so many turns that find nothing: reading it takes longer than such a turn.
pub const CLOCK_EVERY: u32 = 8;

/// A poll that seems to take longer was interrupted.
const LONGEST_POLL_NS: u64 = 1000;

/// The time of such polls.
#[derive(Clone, Debug, Default)]
pub struct Timer {
    /// The last look at the clock in a row of polls that found nothing.
    since: Option<Duration>,
    /// How long such polls took, in nanoseconds, since that was asked for.
    polled_ns: u64,
    /// How long one of them takes: a mean of those between two looks at the clock.
    poll_ns: u64,
}

impl Timer {
    /// The clock was looked at after as many polls as are between two looks.
    pub fn polled(&mut self, now: Duration) {
        if let Some(passed) = self.gave_way(now) {
            let one = (passed / u64::from(CLOCK_EVERY)).min(LONGEST_POLL_NS);
            self.poll_ns = (self.poll_ns * 7 + one).div_ceil(8);
        }
    }

    /// Others ran meanwhile: without them, it would have polled. Returns how long ago the last look was.
    pub fn gave_way(&mut self, now: Duration) -> Option<u64> {
        let since = self.since.replace(now)?;
        let passed = now.saturating_sub(since).as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.polled_ns = self.polled_ns.saturating_add(passed);
        Some(passed)
    }

    /// A sleep has ended.
    pub fn woke(&mut self, now: Duration) {
        self.since = Some(now);
    }

    /// Something was found after so many polls in a row. The clock has not told of all of them.
    #[inline]
    pub fn found_after(&mut self, empty: u32) {
        let rest = if self.since.take().is_some() {
            empty % CLOCK_EVERY
        } else {
            empty
        };
        self.polled_ns += u64::from(rest) * self.poll_ns;
    }

    /// How long they took since this was asked last, in nanoseconds.
    #[inline]
    pub fn take_ns(&mut self) -> u64 {
        std::mem::take(&mut self.polled_ns)
    }
}
