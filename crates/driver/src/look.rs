//! How long to look for a completion before sleeping: a machine without queue or clock of its own.
//!
//! A sleep costs a system call on this side, a call on the device's, and the time until the sleeper
//! runs again. Looking costs this processor. Looking for at most as long as a sleep costs is never much
//! worse than the better of the two; so a look lasts that long at most, for each of the requests that a
//! wait has brought lately: where a batch comes back at once, all of it would wait for the sleeper. Who saves
//! processor time of its own thread, and nothing else ([`Look::thrifty`]), looks for as long as a sleep takes of
//! that; a look that cost more for each request that it found than sleeps do has failed as well. Where
//! looks keep failing (a slow disk, a device that has to be woken first) only one in so many is tried, to
//! notice when that changes.
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
    /// How many requests a wait brings, in quarters: a mean of the last few. Of who is thrifty: a sleep.
    batch: u32,
    thrifty: bool,
}

/// How many looks in a row may fail before some are skipped.
const TOLERATED: u32 = 1;
/// The most requests of a wait that make it look for longer.
const MOST_BATCH: u32 = 8;
/// Of who is thrifty, a wait for more requests than these counts as one for so many.
const MANY: u32 = 256;
/// The most waits that go without a look.
const MOST_SKIPS: u32 = 64;

impl Look {
    /// What a sleep costs: the time from a call to a sleeper that runs is 30 to 55 µs on the machines
    /// that we measured on (`make prices`), with the processor that runs it idle for the most part. A server
    /// that sleeps as well, and looks once it is kept busy, is found awake only by who waits for it that long once.
    pub const DEFAULT_MOST: Duration = Duration::from_micros(45);

    /// What of that the sleeper's own processor pays.
    pub const OWN_COST: Duration = Duration::from_micros(3);

    /// A machine whose looks last `most` at most.
    pub const fn new(most: Duration) -> Self {
        Self {
            most,
            doubt: Doubt::new(TOLERATED, MOST_SKIPS),
            spent: None,
            batch: 4,
            thrifty: false,
        }
    }

    /// A machine that saves processor time of its own thread, of which a sleep costs `most`.
    pub const fn thrifty(most: Duration) -> Self {
        let mut machine = Self::new(most);
        machine.thrifty = true;
        // Sleeps are tried before looks are believed to be cheaper.
        machine.batch = 4 * 16;
        machine
    }

    /// A wait has brought so many requests; in the end, it `slept`.
    #[inline]
    pub fn brought(&mut self, count: usize, slept: bool) {
        let most = if self.thrifty { MANY } else { MOST_BATCH };
        let count = u32::try_from(count).unwrap_or(most).min(most);
        if slept || !self.thrifty {
            self.batch = self.batch - self.batch / 4 + count;
        }
        if let Some([since, last]) = self.spent.take().filter(|_| !slept) {
            // A look that began pays for all that failed; one that found something at once says nothing.
            let spent = last.saturating_sub(since);
            if self.thrifty
                && spent.saturating_mul(self.batch) > self.most.saturating_mul(count * 4)
            {
                self.doubt.failed();
            } else {
                self.doubt.paid();
            }
        }
    }

    /// A look has found nothing. `clock` tells the time since any moment; it is not asked while waits
    /// go without a look.
    #[inline]
    pub fn missed(&mut self, clock: impl FnOnce() -> Duration) -> Next {
        if self.spent.is_none() && !self.doubt.tries() {
            return Next::Sleep;
        }
        let now = clock();
        let [since, _] = self.spent.unwrap_or([now; 2]);
        let most = if self.thrifty {
            self.most
        } else {
            self.most.saturating_mul(self.batch) / 4
        };
        if now.saturating_sub(since) < most {
            self.spent = Some([since, now]);
            return Next::Look;
        }
        self.spent = None;
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
            let mut asked = 0;
            while look.missed(|| {
                asked += 1;
                us(asked)
            }) == Next::Look
            {}
            looked += u32::from(asked > 0);
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

    /// Waits whose looks bring `found` requests after 2 µs, and whose sleeps bring `slept`: how many of 1000 look?
    fn thrifty(found: usize, slept: usize) -> usize {
        let mut look = Look::thrifty(us(3));
        let mut waits = |_: &usize| {
            let looks = (0..2).all(|now| look.missed(|| us(now)) == Next::Look);
            look.brought(if looks { found } else { slept }, !looks);
            looks
        };
        (0..1000).filter(&mut waits).count()
    }

    #[test]
    fn who_is_thrifty_looks_where_that_costs_less_for_each_request_than_sleeps() {
        assert!(thrifty(1, 1) > 900);
        assert!(thrifty(16, 16) > 900);
        assert!(thrifty(8, 16) > 900);
        assert!(thrifty(4, 16) < 50);
        assert!(thrifty(1, 64) < 50);
    }

    #[test]
    fn any_time_can_be_the_longest() {
        for mut look in [Look::new(Duration::MAX), Look::thrifty(Duration::MAX)] {
            assert!(batch(&mut look, 16, 100));
            assert!(batch(&mut look, 16, 100));
        }
    }
}
