//! How many lines of one kind the log is told: what a peer can provoke at will must not fill the log's disk.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pollux_threads::lock;

/// Another line is allowed after so long, up to the burst.
const EACH: Duration = Duration::from_secs(1);

/// A burst of lines is told at once, and one a second after that, with how many were not.
#[derive(Debug)]
pub struct Quota {
    burst: u32,
    state: Mutex<QuotaState>,
}

#[derive(Debug, Default)]
struct QuotaState {
    /// Lines of the burst that are used up, and since when one of them comes back each second.
    used: u32,
    since: Option<Instant>,
    withheld: u64,
}

/// That of lines about a disk: an image or a server can provoke them as often as it likes.
impl Default for Quota {
    fn default() -> Self {
        Self::new(10)
    }
}

/// A line may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// How many before it were not, if any.
    pub withheld: Option<u64>,
}

impl Quota {
    /// So many lines may come at once.
    #[must_use]
    pub const fn new(burst: u32) -> Self {
        let state = QuotaState {
            used: 0,
            since: None,
            withheld: 0,
        };
        let state = Mutex::new(state);
        Self { burst, state }
    }

    /// May another line be told? If not, it is counted.
    #[must_use]
    pub fn admits(&self) -> Option<Admitted> {
        self.admits_at(Instant::now())
    }

    fn admits_at(&self, now: Instant) -> Option<Admitted> {
        let mut state = lock(&self.state);
        let since = *state.since.get_or_insert(now);
        let back = u32::try_from(now.duration_since(since).as_secs()).unwrap_or(u32::MAX);
        state.since = Some(since + back * EACH);
        state.used = state.used.saturating_sub(back);
        if state.used == self.burst {
            state.withheld += 1;
            return None;
        }
        state.used += 1;
        let withheld = std::mem::take(&mut state.withheld);
        let withheld = (withheld > 0).then_some(withheld);
        Some(Admitted { withheld })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMITTED: Option<Admitted> = Some(Admitted { withheld: None });

    fn after(withheld: u64) -> Admitted {
        let withheld = Some(withheld);
        Admitted { withheld }
    }

    #[test]
    fn a_burst_is_told_and_then_one_a_second_with_what_was_not() {
        let quota = Quota::new(10);
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(quota.admits_at(start), ADMITTED);
        }
        for _ in 0..7 {
            assert_eq!(quota.admits_at(start + EACH * 9 / 10), None);
        }
        assert_eq!(quota.admits_at(start + EACH), Some(after(7)));
        assert_eq!(quota.admits_at(start + EACH), None);
        assert_eq!(quota.admits_at(start + EACH * 19 / 10), None);
        // The seconds are counted from the first line, not from the last one.
        assert_eq!(quota.admits_at(start + EACH * 2), Some(after(2)));
        let later = start + EACH * 1000;
        for _ in 0..10 {
            assert_eq!(quota.admits_at(later), ADMITTED);
        }
        assert_eq!(quota.admits_at(later), None);
    }
}
