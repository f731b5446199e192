//! How long to look for a completion before sleeping: a machine without queue or clock of its own.
//!
//! A sleep costs a system call on this side, a call on the device's, and the time until the sleeper
//! runs again. Looking costs this processor. Looking for at most as long as a sleep costs is never much
//! worse than the better of the two; so a look lasts that long at most, for each of the requests that a
//! wait has brought lately: where a batch comes back at once, all of it would wait for the sleeper. Where
//! looks keep failing (a slow disk) only one in so many is tried, to notice when that changes. Who comes
//! after a [`REST`], and not for the first time, sleeps at once: the device sleeps as well, and to look
//! until it is awake takes more of the processor than the sleep. (Once is whoever was preempted.)
//!
//! ```text
//!            found                            found
//!   ┌───────────────────────┐   ┌──────────────────────────────┐
//!   ▼                       │   │                              │
//! Looks ──in vain, twice──▶ Skips 2, then looks once ──in vain──▶ skips twice as many (64 at most)
//! ```

use std::time::Duration;

use pollux_disk::wait::Doubt;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again.
    Look,
    /// Arm, look once more, and sleep.
    Sleep,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Look {
    most: Duration,
    doubt: Doubt,
    /// When the look of this wait began, and its last look in vain.
    spent: Option<[Duration; 2]>,
    /// The last look in vain, unless something was found at once since then.
    seen: Option<Duration>,
    /// Has the last wait come after a rest?
    rested: bool,
    /// How many requests a wait brings, in quarters: a mean of the last few, which stays up to three quarters above what it
    /// comes down to. So who has waited for a few at a time looks for 79 µs for one, and with less was too late on servers
    /// that sleep as well: 0.60 of the requests of a poller, 16 in flight on the storage daemon's tmpfs.
    batch: u32,
}

/// How many looks in a row may fail before some are skipped.
const TOLERATED: u32 = 1;
/// One request, in [`Look::batch`].
const ONE: u32 = 4;
/// The most requests of a wait that make it look for longer.
const MOST_BATCH: u32 = 8;
/// The most waits that go without a look.
const MOST_SKIPS: u32 = 64;
/// Who has not looked for so long comes after a rest: ten looks, so that one in ten is the most that looking for
/// a device that sleeps takes of a processor.
const REST: Duration = Duration::from_micros(450);

impl Look {
    /// What a sleep costs: the time from a call to a sleeper that runs is 30 to 55 µs on the machines
    /// that we measured on (`make prices`), with the processor that runs it idle for the most part. A server
    /// that sleeps as well, and looks once it is kept busy, is found awake only by who waits for it that long once.
    pub const DEFAULT_MOST: Duration = Duration::from_micros(45);

    /// A machine whose looks last `most` at most.
    pub const fn new(most: Duration) -> Self {
        Self {
            most,
            doubt: Doubt::new(TOLERATED, MOST_SKIPS),
            spent: None,
            seen: None,
            rested: false,
            batch: ONE,
        }
    }

    /// A wait has brought so many requests; in the end, it `slept`.
    #[inline]
    pub fn brought(&mut self, count: usize, slept: bool) {
        let count = u32::try_from(count).unwrap_or(MOST_BATCH).min(MOST_BATCH);
        self.batch = self.batch - self.batch / ONE + count;
        if slept {
            return;
        }
        // A look that began pays for all that failed; one that found something at once says nothing.
        let spent = self.spent.take();
        self.seen = spent.map(|[_, last]| last);
        if spent.is_some() {
            self.doubt.paid();
        }
    }

    /// A look has found nothing. `clock` tells the time since one moment for all waits.
    #[inline]
    pub fn missed(&mut self, clock: impl FnOnce() -> Duration) -> Next {
        let now = clock();
        let since = if let Some([since, _]) = self.spent {
            since
        } else {
            let seen = self.seen.replace(now).unwrap_or(now);
            let rested = now.saturating_sub(seen) > REST;
            let again = std::mem::replace(&mut self.rested, rested) && rested;
            if again || !self.doubt.tries() {
                return Next::Sleep;
            }
            now
        };
        if now.saturating_sub(since) < self.most.saturating_mul(self.batch) / ONE {
            self.spent = Some([since, now]);
            return Next::Look;
        }
        (self.spent, self.seen) = (None, Some(now));
        self.doubt.failed();
        Next::Sleep
    }

    /// A wait has ended without anything to show for it.
    #[inline]
    pub fn given_up(&mut self) {
        self.spent = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A wait for something that comes after `gap` µs: was it found by looking?
    fn wait(look: &mut Look, gap: u64) -> bool {
        batch(look, 1, gap)
    }

    /// A wait for so many requests.
    fn batch(look: &mut Look, requests: usize, gap: u64) -> bool {
        for now in 0..gap {
            if look.missed(|| us(now)) == Next::Sleep {
                return false;
            }
        }
        look.brought(requests, false);
        true
    }

    #[test]
    fn what_comes_soon_is_looked_for() {
        let mut look = Look::new(us(30));
        for _ in 0..100 {
            assert!(wait(&mut look, 29));
        }
    }

    #[test]
    fn what_comes_late_is_hardly_looked_for() {
        let mut look = Look::new(us(30));
        let mut looked = 0;
        for _ in 0..1000 {
            let mut now = 0;
            while look.missed(|| us(now)) == Next::Look {
                now += 1;
            }
            looked += u32::from(now > 0);
        }
        assert!(looked < 30, "{looked} of 1000");
    }

    #[test]
    fn looking_comes_back_once_it_pays() {
        let mut look = Look::new(us(30));
        for _ in 0..1000 {
            wait(&mut look, 100);
        }
        let first = (0..1000).find(|_| wait(&mut look, 5)).unwrap();
        assert!(first <= 64, "after {first}");
        assert!((0..100).all(|_| wait(&mut look, 5)));
    }

    #[test]
    fn a_batch_is_looked_for_for_as_long_as_all_of_it_would_wait() {
        let mut look = Look::new(us(30));
        assert!(!wait(&mut look, 100));
        for _ in 0..20 {
            look.brought(16, true);
        }
        assert!((0..100).all(|_| batch(&mut look, 16, 100)));
        for _ in 0..20 {
            look.brought(1, true);
        }
        assert!(!wait(&mut look, 100), "one alone is not worth it");
    }

    #[test]
    fn what_is_there_already_changes_nothing() {
        let mut look = Look::new(us(30));
        for _ in 0..3 {
            wait(&mut look, 100);
        }
        look.brought(1, false);
        assert!(!wait(&mut look, 5), "looks are still skipped");
    }

    #[test]
    fn after_each_rest_but_the_first_nobody_looks() {
        let mut look = Look::new(us(45));
        assert!(wait(&mut look, 2));
        assert_eq!(look.missed(|| us(1000)), Next::Look, "preempted, perhaps");
        look.brought(1, false);
        for ms in 2..100 {
            assert_eq!(look.missed(|| us(ms * 1000)), Next::Sleep);
            look.brought(1, true);
        }
        let now = us(99_100);
        assert_eq!(look.missed(|| now), Next::Look, "it was not long ago");
    }

    #[test]
    fn what_was_found_at_once_is_no_rest() {
        let mut look = Look::new(us(45));
        assert_eq!(look.missed(|| us(0)), Next::Look);
        look.brought(1, false);
        look.brought(1, false);
        assert_eq!(look.missed(|| us(1000)), Next::Look);
    }

    #[test]
    fn any_time_can_be_the_longest() {
        let mut look = Look::new(Duration::MAX);
        assert!(batch(&mut look, 16, 100));
        assert!(batch(&mut look, 16, 100));
    }
}
