//! Neighbours: other threads that want the processor of a thread that polls.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pollux_threads::{Usage, usage};

use super::window::Window;

/// A thread has let others run.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    /// For how long.
    pub took: Duration,
    /// How long the thread itself has run since it last did so.
    pub ran: Duration,
    /// How often it was preempted since then, before it let others run.
    pub before: u64,
    /// How often it was preempted while it did.
    pub meanwhile: u64,
}

thread_local! {
    /// What the thread had of its processor when it last let others run.
    static LAST: Cell<Usage> = const { Cell::new(Usage::NONE) };
}

/// Lets others run that want this processor.
#[must_use]
pub fn give_way() -> Yielded {
    give_way_beside(|| false)
}

/// The same, but preemptions before and in the yield do not count if then a thread `has_helped`.
pub(super) fn give_way_beside(has_helped: impl Fn() -> bool) -> Yielded {
    let by_others = |from: Usage, to: Usage, helped: bool| {
        let came = to.preemptions.saturating_sub(from.preemptions);
        if helped { 0 } else { came }
    };
    let helped_before = has_helped();
    let before = usage();
    let began = Instant::now();
    std::thread::yield_now();
    let took = began.elapsed();
    let after = usage();
    let last = LAST.replace(after);
    Yielded {
        took,
        ran: after.ran.saturating_sub(last.ran),
        before: by_others(last, before, helped_before),
        meanwhile: by_others(before, after, has_helped()),
    }
}

/// Whether others want the processor of a thread that polls: found out by letting them run now and then, and by how
/// often the kernel has taken it ([`usage`](pollux_threads::usage)). A thread that is called may run here, and answer
/// at once: such a poll has found what a sleep would have.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// Empty polls since others might run.
    polls: u32,
    /// For so long of their own time those that poll have run since the pause after others were seen.
    alone: Duration,
    /// How long others run. Of a turn between two yields nothing tells that, so what is known is worth less after it.
    turn: Duration,
    /// So often others were seen, up to [`DOUBLINGS`], less the turns without them.
    times: u32,
    /// There are no polls until then.
    end: Duration,
    /// Others have not run since that pause, so those seen before may have come within it.
    is_after_pause: bool,
}

/// So often the pause becomes twice as long and 50 µs longer, from none to 0.8 s.
const DOUBLINGS: u32 = 14;

impl Neighbours {
    /// After so many empty polls others may run: some 25 µs with one queue.
    pub const YIELD_EVERY: u32 = 1024;

    /// None that are known of.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            polls: 0,
            alone: Duration::ZERO,
            turn: Duration::ZERO,
            times: 0,
            end: Duration::ZERO,
            is_after_pause: false,
        }
    }

    /// May one poll at `now`?
    #[inline]
    #[must_use]
    pub fn lets_poll(&self, now: Duration) -> bool {
        now >= self.end
    }

    /// So many more polls were empty, one after the other or with work between them: is it time to give way?
    #[inline]
    pub fn is_due(&mut self, polls: u32) -> bool {
        self.polls += polls;
        let is_due = self.polls >= Self::YIELD_EVERY;
        if is_due {
            self.polls = 0;
        }
        is_due
    }

    /// Others might run, by `now`. Do any want the processor? They need it more than polls do.
    ///
    /// A yield from which the kernel comes back at once does not mean that there are none. The kernel owes time to a
    /// thread that has slept, and lets it go on although others wait; later they have a turn of milliseconds, in which
    /// nothing is served. So the next pause is a step shorter only when the thread has run for two such turns. Its own
    /// time tells that, as neither a sleep nor a turn of theirs is in it. A thread with much to do yields only every
    /// few milliseconds. If some came since the last yield, it has run between two of them for the mean at least.
    ///
    /// A thread seen within a pause does not tell how long those stay away that caused it: one that runs for a
    /// moment every few milliseconds is seen within each pause that is longer.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) -> bool {
        let was_pause = std::mem::take(&mut self.is_after_pause);
        let before = if was_pause { 0 } else { yielded.before };
        let came = before + yielded.meanwhile;
        // Short of polls, a thread sleeps again before others have a turn: that is no time without them.
        self.alone += yielded.ran.min(now.saturating_sub(self.end));
        let between = u32::try_from(came + 1).map_or(Duration::ZERO, |times| self.alone / times);
        // Beside a thread that computes it has every other turn, so one turn alone says nothing.
        let turn = 2 * Window::MOST.max(self.turn);
        let turns = between.as_nanos() / turn.as_nanos();
        let turns = u32::try_from(turns).unwrap_or(u32::MAX);
        self.times = self.times.saturating_sub(turns);
        if came == 0 {
            self.alone -= turn * turns;
            return false;
        }
        self.alone = Duration::ZERO;
        self.turn = yielded.took.max(self.turn / 2);
        // A thread that comes once may have come for a moment: no pause.
        self.end = now + Window::MOST * ((1 << self.times) - 1);
        self.is_after_pause = true;
        // Others may run at once after it, so that what counts begins there.
        self.polls = Self::YIELD_EVERY;
        self.times = (self.times + 1).min(DOUBLINGS);
        true
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yield_tells_what_the_thread_had_since_the_one_before() {
        let _ = give_way();
        // The kernel counts it by its next tick.
        let mut ran = Duration::ZERO;
        while ran.is_zero() {
            ran += give_way().ran;
        }
        let all = usage().ran;
        assert!(ran <= all, "{ran:?} of {all:?}");
    }

    #[test]
    fn one_preemption_makes_no_pause_and_further_ones_longer_pauses() {
        let mut neighbours = Neighbours::new();
        let mut now = Duration::from_secs(1);
        for pause in [0, 50, 150, 350] {
            let yielded = Yielded {
                took: Duration::from_micros(5),
                ran: Duration::from_micros(10),
                before: 0,
                meanwhile: 1,
            };
            assert!(neighbours.gave_way(now, yielded));
            let end = now + Duration::from_micros(pause);
            let polls = neighbours.lets_poll(end.saturating_sub(Duration::from_nanos(1)));
            assert!(!polls, "{pause}");
            assert!(neighbours.lets_poll(end), "{pause}");
            now = end;
        }
    }

    #[test]
    fn preemptions_beside_helpers_do_not_count() {
        for _ in 0..100 {
            let yielded = give_way_beside(|| true);
            assert_eq!((yielded.before, yielded.meanwhile), (0, 0));
        }
    }
}
