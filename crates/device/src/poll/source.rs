//! One source of work, and for how long it pays to look for more of it.

use std::time::Duration;

use pollux_disk::wait::Doubt;

/// Below this a window is not worth its bookkeeping and becomes 0.
pub const LEAST: Duration = Duration::from_micros(4);

/// A window covers gaps so many times as long as one that has ended. A driver that sends every 10 or 20 µs is kept from it
/// for 40 by the tick of its own processor: with 2 the worker slept over 121 of 100,000 gaps of 10 µs, with 4 over 24, with 8
/// over 5 (medians of 16 runs of a second).
const COVERS: u32 = 8;

/// How many looks in a row may fail before some are skipped.
const TOLERATED: u32 = 2;
/// The most sleeps without a look before them.
const MOST_SKIPS: u32 = 1024;

/// What may be worth looking for, of a source whose work comes so many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    /// A gap shorter than this parts nothing: to sleep through it would take longer.
    pub gap: Duration,
    /// The longest gap that is worth being looked through for a single request.
    pub single: Duration,
    /// The longest for any number.
    pub most: Duration,
}

impl Worth {
    /// The longest gap that is worth being looked through for so many sixteenths of a request.
    fn of(self, sixteenths: u32) -> Duration {
        (self.single * sixteenths.max(ONE) / ONE).min(self.most)
    }
}

/// A request, as they are counted here: in sixteenths, so that their mean may be one.
const ONE: u32 = 16;
/// More at a time than this are taken for as many.
const MANY: u32 = 256;

/// What looking at one source has brought. Its *window* is how long after the last of its work one looks
/// for more before one sleeps.
#[derive(Clone, Debug)]
pub struct Source {
    window: Duration,
    /// When it was found to bring nothing more.
    since: Duration,
    /// Is it looked for since then?
    open: bool,
    /// So many requests it has brought since the worker last slept or it last brought none for a while.
    burst: u32,
    /// So many sixteenths it brings between two such whiles: a mean of the last few.
    bursts: u32,
    doubt: Doubt,
}

impl Source {
    /// One that nothing is known of.
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            since: Duration::ZERO,
            open: false,
            burst: 0,
            bursts: ONE,
            doubt: Doubt::new(TOLERATED, MOST_SKIPS),
        }
    }

    /// It has brought so many requests, and from `now` on nothing more. Until when is it to be looked at,
    /// where the worker `looks` at all?
    pub fn quiet(&mut self, now: Duration, requests: u16, looks: bool) -> Duration {
        self.burst = self.burst.saturating_add(requests.into()).min(MANY);
        self.since = now;
        self.open = looks && !self.window.is_zero() && self.doubt.tries();
        if self.open { now + self.window } else { now }
    }

    /// It has brought something again, after a look until `now` or, `slept`, because the processor was others' by then.
    ///
    /// Had it paid to look for longer, the window grows at once, and so covers nearly all gaps of a stream
    /// that is uneven; it shrinks slowly, since a wide window costs nothing while the stream goes on. A gap
    /// had better been slept through if it is longer than what follows is worth: every request of a burst would
    /// have waited for the sleep's end. One such gap is chance, a dozen are a sparse stream.
    pub fn brings(&mut self, now: Duration, slept: bool, worth: Worth) {
        let gap = now.saturating_sub(self.since);
        self.judge_look(slept);
        if slept || gap >= worth.gap {
            self.bursts = self.bursts - self.bursts / 8 + self.burst * (ONE / 8);
            self.burst = 0;
        }
        let max = worth.of(self.bursts);
        if gap < max {
            let covers = (gap * COVERS).max(LEAST);
            self.set_window(covers.max(self.window * 255 / 256).min(max));
        } else {
            self.set_window(self.window * 7 / 8);
        }
    }

    /// The worker has slept, and what woke it was not this.
    pub fn brings_nothing(&mut self) {
        self.judge_look(true);
        self.burst = 0;
        self.set_window(self.window * 7 / 8);
    }

    /// A look has ended, if there was one: in vain?
    fn judge_look(&mut self, in_vain: bool) {
        if self.open && in_vain {
            self.doubt.failed();
        } else if self.open {
            self.doubt.paid();
        }
        self.open = false;
    }

    /// One that is too narrow is none.
    fn set_window(&mut self, window: Duration) {
        self.window = if window < LEAST {
            Duration::ZERO
        } else {
            window
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORTH: Worth = Worth {
        gap: us(50),
        single: us(200),
        most: us(800),
    };

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A gap of `gap` µs after that many requests: was its end found by looking?
    fn burst(source: &mut Source, requests: u16, gap: u64) -> bool {
        let found = source.quiet(us(0), requests, true) > us(gap);
        source.brings(us(gap), !found, WORTH);
        found
    }

    /// A gap of `gap` µs after a request: was its end found by looking?
    fn gap(source: &mut Source, gap: u64) -> bool {
        burst(source, 1, gap)
    }

    #[test]
    fn the_window_grows_over_gaps_that_are_short_enough() {
        let mut source = Source::new(us(50));
        assert!(!gap(&mut source, 80));
        assert_eq!(source.window, WORTH.single);
        assert!(gap(&mut source, 80), "the second time, looking pays");
    }

    #[test]
    fn the_window_closes_over_gaps_that_are_too_long_and_opens_again() {
        let mut source = Source::new(us(50));
        for _ in 0..30 {
            assert!(!gap(&mut source, 10_000));
        }
        assert_eq!(source.window, Duration::ZERO);
        assert!(!gap(&mut source, 1));
        assert_eq!(source.window, us(1) * COVERS);
    }

    #[test]
    fn an_uneven_stream_is_covered() {
        let mut source = Source::new(us(50));
        gap(&mut source, 60);
        for _ in 0..10 {
            for common in [20, 21, 19, 25, 20] {
                assert!(gap(&mut source, common));
            }
            assert!(
                gap(&mut source, 60),
                "the rare one is remembered for a while"
            );
        }
    }

    #[test]
    fn what_comes_only_to_sleepers_is_hardly_looked_for() {
        // The driver shares this processor: it runs while the worker sleeps, and then at once.
        let mut source = Source::new(us(50));
        let mut looked = 0;
        for _ in 0..10_000 {
            let until = source.quiet(us(0), 1, true);
            looked += u32::from(until > us(0));
            source.brings(until + us(10), true, WORTH);
        }
        assert!(looked < 30, "{looked} of 10000");
    }

    #[test]
    fn what_comes_many_at_a_time_is_worth_longer_looks() {
        for (requests, gap, worth) in [
            (1, 300, false),
            (2, 300, true),
            (8, 750, true),
            (8, 850, false),
        ] {
            let mut source = Source::new(us(50));
            for _ in 0..100 {
                burst(&mut source, requests, gap);
            }
            let found = burst(&mut source, requests, gap);
            assert_eq!(found, worth, "{requests} every {gap} µs");
        }
    }

    #[test]
    fn a_burst_that_comes_one_by_one_is_a_burst() {
        let mut source = Source::new(us(50));
        for _ in 0..100 {
            for _ in 0..7 {
                gap(&mut source, 2);
            }
            gap(&mut source, 600);
        }
        assert!(gap(&mut source, 600));
    }

    #[test]
    fn single_requests_after_bursts_are_singles_soon() {
        let mut source = Source::new(us(50));
        for _ in 0..100 {
            burst(&mut source, 64, 500);
        }
        for _ in 0..60 {
            gap(&mut source, 500);
        }
        assert!(!gap(&mut source, 500));
    }
}
