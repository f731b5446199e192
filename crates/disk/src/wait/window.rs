//! For how long it pays to poll for something before sleeping: a machine without descriptor, thread or clock of its
//! own.
//!
//! The worker of a device and a program that waits for one decide by the same machine. After the last event it polls
//! for a while, its *window*, which follows the gaps between events; when polls fail again and again, more and more
//! gaps are slept through before the next.
//!
//! ```text
//!              an event, in time: the window covers eight such gaps
//!            ┌─────────────────────────────────────────────────────┐
//!            ▼                                                     │
//!         polling ──── nothing within the window ────▶ asleep ─────┘
//!            ▲                                           │
//!            └── the pause is over: as long as may be ───┴──▶ the third in a row: a pause of a gap, then of two, four …
//! ```

use std::time::Duration;

/// The machine, one for each kind of event that is waited for.
#[derive(Clone, Debug)]
pub struct Window {
    length: Duration,
    /// Polls that failed in a row.
    failures: u32,
    /// So many more gaps are slept through.
    pause: u32,
}

/// A window covers gaps so many times as long as the last: a driver that sends every 10 µs is kept from it for 40 by
/// the timer of its own processor.
const COVERS: u32 = 8;

/// No window is shorter.
const LEAST: Duration = Duration::from_micros(4);

/// So many polls in a row may fail before there is a pause.
const TOLERATED: u32 = 2;

/// The longest pause, in gaps. Each of them takes a sleep, which costs the processor some 10 µs: so a poll that fails
/// costs a fiftieth of it, whatever the rate. A load that has become worth polls goes without for some 10 ms.
const LONGEST: u32 = 256;

impl Window {
    /// The longest window there is: some two wake-ups. A thread that sleeps after it has waited at most three times as
    /// long as was necessary, and a wake-up that comes sooner might as well have been polled for.
    pub const MOST: Duration = Duration::from_micros(50);

    /// One that nothing is known of.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            length: Self::MOST,
            failures: 0,
            pause: 0,
        }
    }

    /// A gap begins: for how long is it polled through, `most` at most?
    #[inline]
    #[must_use]
    pub fn open(&mut self, most: Duration) -> Duration {
        if self.pause > 0 {
            self.pause -= 1;
            Duration::ZERO
        } else if self.failures > TOLERATED {
            // What is asleep when the event comes is late itself: only a long poll shows how early that might have
            // been.
            most
        } else {
            self.length.min(most)
        }
    }

    /// The event came after such a gap, polled or slept through, where a window of `most` was allowed. One that is
    /// longer is chance; a few are a sparse stream.
    #[inline]
    pub fn came_after(&mut self, gap: Duration, most: Duration) {
        self.length = if gap < most {
            (gap * COVERS).max(self.length / 256 * 255).min(most)
        } else {
            self.length / 2
        };
        self.length = self.length.max(LEAST);
    }

    /// A poll has found it.
    #[inline]
    pub fn paid(&mut self) {
        self.failures = 0;
    }

    /// A poll has failed.
    pub fn failed(&mut self) {
        if let Some(doublings) = self.failures.checked_sub(TOLERATED) {
            self.pause = (1 << doublings.min(31)).min(LONGEST);
        }
        self.failures = self.failures.saturating_add(1);
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Window::MOST;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Events `gap` apart, slept through as `late` more, for so many: how many were polled for in time, and how long
    /// was polled?
    fn stream(
        window: &mut Window,
        now: &mut Duration,
        gap: Duration,
        late: Duration,
        events: u32,
    ) -> (u32, Duration) {
        let (mut found, mut polled) = (0, Duration::ZERO);
        for _ in 0..events {
            let open = window.open(MOST);
            let in_time = gap < open;
            polled += open.min(gap);
            if in_time {
                window.paid();
                found += 1;
            } else if !open.is_zero() {
                window.failed();
            }
            let gap = if in_time { gap } else { gap + late };
            window.came_after(gap, MOST);
            *now += gap;
        }
        (found, polled)
    }

    #[test]
    fn polls_follow_what_comes() {
        // Gap in µs, how much later a sleep ends, and how many of a thousand are found by polls.
        for (gap, late, polled_for) in [
            (1, 30, 1000),
            (20, 30, 1000),
            (40, 30, 1000),
            (5, 500, 1000),
            (60, 30, 0),
            (1000, 30, 0),
        ] {
            let (mut window, mut now) = (Window::new(), Duration::ZERO);
            stream(&mut window, &mut now, us(2000), us(30), 1000);
            stream(&mut window, &mut now, us(gap), us(late), 20_000);
            let (found, _) = stream(&mut window, &mut now, us(gap), us(late), 1000);
            assert_eq!(found, polled_for, "every {gap} µs");
        }
    }

    #[test]
    fn polls_that_fail_take_little_of_the_time() {
        for gap in [60, 100, 1000, 10_000] {
            let (mut window, mut now) = (Window::new(), Duration::ZERO);
            stream(&mut window, &mut now, us(gap), us(30), 1000);
            let began = now;
            let (_, polled) = stream(&mut window, &mut now, us(gap), us(30), 10_000);
            assert!(
                polled * 300 < now.saturating_sub(began),
                "{polled:?} every {gap} µs"
            );
        }
    }

    #[test]
    fn a_burst_is_covered_and_its_end_costs_eight_of_its_gaps() {
        let (mut window, mut now) = (Window::new(), Duration::ZERO);
        stream(&mut window, &mut now, us(2), us(30), 5000);
        assert_eq!(window.open(MOST), us(16));
    }

    #[test]
    fn any_time_is_within_its_reach() {
        let mut window = Window::new();
        for _ in 0..100 {
            window.failed();
        }
        window.came_after(Duration::from_secs(u64::MAX >> 8), MOST);
        for _ in 0..LONGEST {
            assert!(window.open(MOST).is_zero());
        }
        assert_eq!(window.open(MOST), MOST);
    }
}
