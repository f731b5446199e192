//! Whether somebody else wants this processor.
//!
//! While a worker looks in vain for long it gives way now and then (`sched_yield`), which takes next to no time
//! where nobody waits. Where somebody ran for longer than most threads of the kernel do, and is soon back, looking
//! delays more than it saves: one who looks waits for his turn like everybody else, and one who is woken comes before
//! those who have just run. Who comes once in a while, as threads of the kernel do that look after its memory, for a
//! millisecond or two, is no reason to look less.

use std::time::Duration;

/// What giving way has shown.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// No looking before this.
    until: Duration,
    /// Whoever takes long before this was here before, not long ago.
    again: Duration,
    /// Others took long again so many times in a row.
    times: u32,
    /// So many turns in vain since one last gave way.
    vain: u32,
}

/// Most threads of the kernel are believed to run for less than this at once, and others who want the processor for
/// longer: a choice, not a measurement.
const MOMENT: Duration = Duration::from_micros(200);
/// Giving way takes less than this where nobody wants the processor, and longer where somebody ran.
const SWITCH: Duration = Duration::from_micros(2);
/// How much longer one sleeps than others took, and the doublings of that. Who is not back within that time is not
/// waited for at all: a thread of the kernel's memory management that ran for 1.2 ms every half second had the worker
/// sleep over 3 % of the requests of a driver that sent one every 20 µs, and over none since.
const PAUSE: u32 = 16;
const MOST_DOUBLINGS: u32 = 6;

/// Between two times that one gives way there are so many turns in vain: a choice, so that most drivers have
/// answered by then.
const EVERY: u32 = 2048;

impl Crowd {
    /// Is it time to give way, after so many more turns in vain? What was found between them does not count: one
    /// who finds something every 20 µs, and looks for it meanwhile, has the processor all the same.
    #[inline]
    pub fn is_due(&mut self, turns: u32) -> bool {
        self.vain += turns;
        if self.vain < EVERY {
            return false;
        }
        self.vain = 0;
        true
    }

    /// Did somebody run, where giving way `took` so long?
    pub fn ran(took: Duration) -> bool {
        took >= SWITCH
    }

    /// It took until `now` to get the processor back.
    pub fn gave_way(&mut self, now: Duration, took: Duration) {
        if took < MOMENT {
            self.times = 0;
            return;
        }
        if now < self.again {
            self.until = now + took * (PAUSE << self.times.min(MOST_DOUBLINGS));
            self.times = self.times.saturating_add(1);
        }
        self.again = now.max(self.until) + took * PAUSE;
    }

    /// Are there others for whose sake one does not look at `now`?
    #[inline]
    pub fn is_there(&self, now: Duration) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn who_waits_for_a_moment_looks_on() {
        let mut crowd = Crowd::default();
        for n in 1..100 {
            crowd.gave_way(us(100 * n), us(20));
            assert!(!crowd.is_there(us(100 * n)));
        }
    }

    #[test]
    fn who_waits_for_long_again_and_again_stops_looking() {
        let mut crowd = Crowd::default();
        let (mut now, mut waited, mut times) = (Duration::ZERO, Duration::ZERO, 0);
        let slice = us(3000);
        while now < Duration::from_secs(60) {
            if crowd.is_there(now) {
                now += us(1000);
                continue;
            }
            (now, waited, times) = (now + slice, waited + slice, times + 1);
            crowd.gave_way(now, slice);
        }
        assert!((20..40).contains(&times), "{times}");
        assert!(waited * 100 < now, "{waited:?} of {now:?}");
        crowd.gave_way(now, Duration::from_nanos(300));
        crowd.gave_way(now, slice);
        assert!(
            !crowd.is_there(now + slice * 17),
            "being alone once is a new beginning"
        );
    }

    /// Others who run for `slice` in each `period`: for how much of a minute is not looked?
    fn visited(slice: Duration, period: Duration) -> f64 {
        let minute = Duration::from_secs(60);
        let (mut crowd, mut paused) = (Crowd::default(), Duration::ZERO);
        let mut now = Duration::ZERO;
        while now < minute {
            // One looks, alone, and then they come.
            crowd.gave_way(now, Duration::from_nanos(300));
            now += period;
            if crowd.is_there(now) {
                paused += period;
            } else {
                crowd.gave_way(now, slice);
            }
        }
        paused.div_duration_f64(minute)
    }

    #[test]
    fn who_comes_once_in_a_while_does_not_stop_the_looking() {
        assert!(visited(us(1200), us(500_000)) == 0.0);
        assert!(visited(us(3000), us(50_000)) == 0.0);
    }

    #[test]
    fn who_is_soon_back_stops_it() {
        let most = visited(us(1000), us(2000));
        assert!(most > 0.8, "{most}");
    }
}
