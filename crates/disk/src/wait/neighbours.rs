//! Neighbours: other threads that want the processor of a thread that polls.

use std::time::{Duration, Instant};

use pollux_threads::{Usage, usage};

use super::window::Window;

/// A thread has let others run.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    /// For how long.
    pub took: Duration,
    /// What it had of its processor before that.
    pub before: Usage,
    /// And after.
    pub after: Usage,
}

/// Lets others run that want this processor.
#[must_use]
pub fn give_way() -> Yielded {
    let before = usage();
    let began = Instant::now();
    std::thread::yield_now();
    Yielded {
        took: began.elapsed(),
        before,
        after: usage(),
    }
}

/// How often a thread was preempted, and how often of that by threads that work for it.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    counted: u64,
    by_helpers: u64,
}

impl Preemptions {
    /// There were so many by now, and a thread `has_helped` since the last time. How many were by others? Of another
    /// thread there may be fewer.
    pub(super) fn by_others(&mut self, all: u64, has_helped: bool) -> u64 {
        if has_helped {
            self.by_helpers += all.saturating_sub(self.counted);
        }
        self.counted = all;
        all.saturating_sub(self.by_helpers)
    }
}

/// Whether others want the processor of a thread that polls: found out by letting them run now and then, and by how
/// often the kernel has taken it ([`usage`](pollux_threads::usage)). A thread that is called may run here, and answer at
/// once: such a poll has found what a sleep would have.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// Empty polls since others might run.
    polls: u32,
    /// What the thread had of its processor by then; not if another one polls now.
    last: Option<Usage>,
    /// For so long of its own time it ran since others were seen.
    alone: Duration,
    /// How long others ran when they were seen. Of a turn between two yields nothing tells that.
    turn: Duration,
    /// So often in a row others were seen.
    times: u32,
    /// There are no polls until then.
    end: Duration,
}

/// After so many empty polls others may run: some 6 µs.
const YIELD_EVERY: u32 = 256;

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(200);

impl Neighbours {
    /// None that are known of.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            polls: 0,
            last: None,
            alone: Duration::ZERO,
            turn: Duration::ZERO,
            times: 0,
            end: Duration::ZERO,
        }
    }

    /// May one poll at `now`?
    #[inline]
    #[must_use]
    pub fn lets_poll(&self, now: Duration) -> bool {
        now >= self.end
    }

    /// Another thread polls from now on, with preemptions and a time of its own.
    pub fn moved(&mut self) {
        self.last = None;
    }

    /// So many more polls were empty, one after the other or with work between them: is it time to give way?
    #[inline]
    pub fn is_due(&mut self, polls: u32) -> bool {
        self.polls += polls;
        let is_due = self.polls >= YIELD_EVERY;
        if is_due {
            self.polls = 0;
        }
        is_due
    }

    /// Others might run, by `now`. Do any want the processor? They need it more than polls do.
    ///
    /// A yield from which the kernel comes back at once does not mean that there are none. The kernel owes time to a
    /// thread that has slept, and lets it go on although others wait; later they have a turn of milliseconds, in which
    /// nothing is served. So others have gone only when the thread has run for as many such turns as they were seen times
    /// in a row. Its own time tells that, as neither a sleep nor a turn of theirs is in it. A thread with much to do
    /// yields only every few milliseconds. If some came since the last yield, it has run between two of them for the
    /// mean at least.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) -> bool {
        let Yielded {
            took,
            before,
            after,
        } = yielded;
        let last = self.last.replace(after);
        let came = after
            .preemptions
            .saturating_sub(last.unwrap_or(before).preemptions);
        self.alone += after.ran.saturating_sub(last.unwrap_or(after).ran);
        let between = u32::try_from(came + 1).map_or(Duration::ZERO, |times| self.alone / times);
        if between >= Window::MOST.max(self.turn) * self.times {
            self.times = 0;
        }
        if came == 0 {
            return false;
        }
        self.alone = Duration::ZERO;
        self.turn = took;
        let pause = (Window::MOST * (1 << self.times)).min(LONGEST);
        self.times = (self.times + 1).min(31);
        self.end = now + pause;
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
    fn preemptions_by_helpers_are_left_out() {
        let mut preemptions = Preemptions::default();
        let told = [
            (3, false),
            (5, true),
            (5, false),
            (6, false),
            (7, true),
            (1, true),
        ];
        let others = told.map(|(all, has_helped)| preemptions.by_others(all, has_helped));
        assert_eq!(others, [3, 3, 3, 4, 4, 0]);
    }
}
