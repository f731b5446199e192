//! How often, and for how long, the driver tries to reach a server that is gone.

use std::time::{Duration, Instant};

use crate::error::Lost;

/// The pause after the first attempt, which is made at once. Each pause is twice as long as the one before.
const FIRST: Duration = Duration::from_millis(1);

/// The longest pause. An attempt costs some ten microseconds while no server is there, so that this is still
/// next to nothing, and half a second more is little after a wait that was longer than that.
const LONGEST: Duration = Duration::from_millis(500);

/// Why an attempt to go on at another server has failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Another may succeed.
    ForNow(String),
    /// None will.
    ForGood(Lost),
}

impl Failed {
    /// Another attempt may succeed.
    pub(crate) fn for_now(error: impl std::error::Error) -> Self {
        let mut all = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            all = format!("{all}: {error}");
            source = error.source();
        }
        Self::ForNow(all)
    }
}

/// How requests get on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// So much has ended for good. It may be less for a moment, while some of it is done again.
    pub(crate) ended: u64,
    /// Some have not.
    pub(crate) is_waited_for: bool,
}

/// A server is away, or was lately. Without a clock, so that each rule is a line of a test.
#[derive(Debug)]
pub(crate) struct Absence {
    until: Instant,
    within: Duration,
    pause: Duration,
    /// Was a request waiting when it went?
    is_waited_for: bool,
    /// When it was back last, and the most that had ended by then.
    back: Option<(Instant, u64)>,
}

impl Absence {
    /// From `now` on it may be away for as long as `within`.
    pub(crate) fn begin(now: Instant, within: Duration, progress: Progress) -> Self {
        Self {
            until: after(now, within),
            within,
            is_waited_for: progress.is_waited_for,
            pause: Duration::ZERO,
            back: None,
        }
    }

    /// It is back.
    pub(crate) fn end(&mut self, now: Instant, ended: u64) {
        let before = self.back.map_or(0, |(_, before)| before);
        self.back = Some((now, before.max(ended)));
    }

    /// It is gone again. A server that a request makes crash comes back, is handed the request once more, and crashes
    /// again, for ever: so being back counts only if a request has ended since, or it has stayed for as long as it may
    /// be away; else it is the same absence. Where no request has waited for it since before, that may last as long
    /// again, and attempts are as seldom as they were.
    pub(crate) fn goes_on(mut self, now: Instant, progress: Progress) -> Self {
        let is_the_same = self.back.is_some_and(|(since, before)| {
            progress.ended <= before && now.duration_since(since) < self.within
        });
        if !is_the_same {
            return Self::begin(now, self.within, progress);
        }
        if !self.is_waited_for || !progress.is_waited_for {
            self.until = after(now, self.within);
        }
        self.is_waited_for = progress.is_waited_for;
        self
    }

    /// How long to wait before the next attempt; `None`, when it is too late for one.
    pub(crate) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let left = self.left(now);
        let is_first = self.pause.is_zero();
        let pause = self.pause.min(left);
        self.pause = (2 * self.pause).clamp(FIRST, LONGEST);
        (is_first || !left.is_zero()).then_some(pause)
    }

    /// How long it may still be away.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

/// So long after `now`. A wait of centuries is one for ever.
fn after(now: Instant, within: Duration) -> Instant {
    now.checked_add(within).unwrap_or(now + FOR_EVER)
}

/// A century.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[cfg(test)]
mod tests;
