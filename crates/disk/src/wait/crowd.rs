//! Whether others want the processor of a thread that polls.

use std::time::{Duration, Instant};

use pollux_threads::preemptions;

use super::window::Window;

/// A thread has let others run.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    /// For how long.
    pub took: Duration,
    /// How often it was preempted before and after that.
    pub preemptions: [u64; 2],
}

/// Lets others run that want this processor.
#[must_use]
pub fn give_way() -> Yielded {
    let before = preemptions();
    let began = Instant::now();
    std::thread::yield_now();
    Yielded {
        took: began.elapsed(),
        preemptions: [before, preemptions()],
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
/// often the kernel has taken it ([`preemptions`](pollux_threads::preemptions)). A thread that is called may run here,
/// and answer at once: such a poll has found what a sleep would have.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Empty polls since others might run.
    polls: u32,
    /// When that was, and the preemptions by then, unless there was a pause since.
    seen: Option<(Duration, u64)>,
    /// They were those of another thread.
    moved: bool,
    /// So long others ran last.
    took: Duration,
    /// So often in a row others were seen.
    times: u32,
    /// So long there are no polls after that, until then.
    pause: Duration,
    end: Duration,
}

/// After so many empty polls others may run: some 6 µs.
const YIELD_EVERY: u32 = 256;

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(200);

impl Crowd {
    /// One that is not known of.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            polls: 0,
            seen: None,
            moved: false,
            took: Duration::ZERO,
            times: 0,
            pause: Duration::ZERO,
            end: Duration::ZERO,
        }
    }

    /// May one poll at `now`?
    #[inline]
    #[must_use]
    pub fn lets_poll(&self, now: Duration) -> bool {
        now >= self.end
    }

    /// Another thread polls from now on, with preemptions of its own.
    pub fn moved(&mut self) {
        self.moved = true;
    }

    /// So many more polls were empty, in a row or with work between them: is it time to give way?
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
    /// nothing is served. So others have gone only when none was seen for as long as such a turn took. A busy thread
    /// yields as seldom: then there was such a time if those that came in between leave room for it.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) -> bool {
        let [before, after] = yielded.preemptions;
        let seen = self.seen.take();
        let moved = std::mem::take(&mut self.moved);
        let counted = seen.filter(|_| !moved).map_or(before, |(_, seen)| seen);
        let came = after.saturating_sub(counted);
        if let Some((at, _)) = seen {
            let gone = self.pause.max(self.took);
            let quiet = now.saturating_sub(at + yielded.took);
            let had_room = came == 0 || quiet.as_nanos() / u128::from(came + 1) >= gone.as_nanos();
            if had_room && now >= self.end + gone {
                (self.times, self.pause) = (0, Duration::ZERO);
            }
        }
        if came > 0 {
            self.took = yielded.took;
            self.pause = (Window::MOST * (1 << self.times.min(31))).min(LONGEST);
            self.times = self.times.saturating_add(1);
            self.end = now + self.pause;
            return true;
        }
        self.seen = Some((now, after));
        false
    }
}

impl Default for Crowd {
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
