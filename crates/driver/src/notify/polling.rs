//! How long a thread that waits for a completion polls before sleeping: a machine without queue or clock of its own,
//! the [`Window`] of the worker on the device's side, for one wait after the other.

use std::thread::{self, ThreadId};
use std::time::Duration;

use pollux_disk::wait::{Neighbours, Window, Yielded};

use crate::sync::{Mutex, lock};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll again.
    Poll,
    /// Let others run that wait for this processor, if there are any, and poll again.
    Yield,
    /// Arm, poll once more, and sleep.
    Sleep,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Polling {
    window: Window,
    neighbours: Neighbours,
    wait: Option<Wait>,
}

/// A wait that was not over at once.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Duration,
    /// Until when is polled. Zero: not, or not any more.
    until: Duration,
    /// Did others run in it?
    interrupted: bool,
}

impl Polling {
    /// One that nothing is known of.
    pub const fn new() -> Self {
        Self {
            window: Window::new(),
            neighbours: Neighbours::new(),
            wait: None,
        }
    }

    /// A poll was empty, at `now`.
    #[inline]
    pub fn empty(&mut self, now: Duration) -> Next {
        let wait = self.wait.get_or_insert_with(|| {
            let open = if self.neighbours.lets_poll(now) {
                self.window.open(Window::MOST)
            } else {
                Duration::ZERO
            };
            let until = if open.is_zero() { open } else { now + open };
            Wait {
                since: now,
                until,
                interrupted: false,
            }
        });
        if now < wait.until {
            return self.polls_on();
        }
        if !wait.until.is_zero() {
            wait.until = Duration::ZERO;
            self.window.failed();
        }
        Next::Sleep
    }

    /// A poll was empty, and there is no sleep.
    #[inline]
    pub fn polls_on(&mut self) -> Next {
        if self.neighbours.is_due(1) {
            Next::Yield
        } else {
            Next::Poll
        }
    }

    /// Others might run, by `now`.
    pub fn gave_way(&mut self, now: Duration, yielded: Yielded) {
        if self.neighbours.gave_way(now, yielded)
            && let Some(wait) = &mut self.wait
        {
            wait.interrupted = true;
            wait.until = Duration::ZERO;
        }
    }

    /// Another thread waits next.
    pub fn moved(&mut self) {
        self.neighbours.moved();
    }

    /// The wait has ended. `clock` is asked if it took any time.
    #[inline]
    pub fn over(&mut self, clock: impl FnOnce() -> Duration) {
        if let Some(wait) = self.wait.take() {
            if !wait.until.is_zero() {
                self.window.paid();
            }
            if !wait.interrupted {
                let gap = clock().saturating_sub(wait.since);
                self.window.came_after(gap, Window::MOST);
            }
        }
    }

    /// The wait has ended without anything to show for it.
    pub fn given_up(&mut self) {
        if let Some(wait) = self.wait.take()
            && !wait.until.is_zero()
        {
            self.window.failed();
        }
    }
}

/// What the threads that wait on one queue have learnt, each for all of them. Each polls with a copy; of two that poll
/// at the same time, what the later one has learnt stays.
#[derive(Debug)]
pub struct SharedPolling {
    /// And by which thread.
    learnt: Mutex<(Polling, Option<ThreadId>)>,
}

/// A wait that is slept through.
#[derive(Debug)]
#[must_use = "how long it took is to be learnt"]
pub struct Slept(Option<Wait>);

impl SharedPolling {
    /// Of a queue that nothing is known of.
    pub fn new() -> Self {
        Self {
            learnt: Mutex::new((Polling::new(), None)),
        }
    }

    /// For a wait of this thread's.
    pub fn begin(&self) -> Polling {
        let (mut polling, by) = lock(&self.learnt).clone();
        if by != Some(thread::current().id()) {
            polling.moved();
        }
        polling
    }

    /// The wait was polled until its end.
    pub fn end(&self, mut polling: Polling, clock: impl FnOnce() -> Duration) {
        polling.over(clock);
        self.store(polling);
    }

    /// The wait is slept through from now on, for as long as that takes: others learn more meanwhile.
    pub fn sleep(&self, mut polling: Polling) -> Slept {
        let slept = Slept(polling.wait.take());
        self.store(polling);
        slept
    }

    /// That sleep is over.
    pub fn wake(&self, Slept(wait): Slept, clock: impl FnOnce() -> Duration) {
        let (polling, _) = &mut *lock(&self.learnt);
        polling.wait = wait;
        polling.over(clock);
    }

    fn store(&self, polling: Polling) {
        *lock(&self.learnt) = (polling, Some(thread::current().id()));
    }
}

#[cfg(test)]
mod tests {
    use pollux_threads::Usage;

    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Waits one after the other, of `gap` µs where they are polled, polls of a µs: how many of so many are?
    fn polled(polls: &mut Polling, now: &mut Duration, gap: u64, waits: u32) -> u32 {
        let mut polled = 0;
        for _ in 0..waits {
            let end = *now + us(gap);
            let mut sleeps = false;
            while *now < end && !sleeps {
                sleeps = polls.empty(*now) == Next::Sleep;
                *now += us(1);
            }
            if sleeps {
                *now = end + us(30);
            }
            polled += u32::from(!sleeps);
            polls.over(|| *now);
        }
        polled
    }

    #[test]
    fn what_comes_soon_is_polled_for_and_what_comes_late_is_not() {
        let (mut polls, mut now) = (Polling::new(), us(0));
        assert_eq!(polled(&mut polls, &mut now, 30, 100), 100);
        assert_eq!(polled(&mut polls, &mut now, 200, 1000), 0);
        let mut rounds = 0;
        while polled(&mut polls, &mut now, 5, 1000) < 1000 {
            rounds += 1;
        }
        assert!(rounds < 10, "{rounds} thousand waits");
    }

    #[test]
    fn what_was_there_at_once_says_nothing() {
        let (mut polls, mut now) = (Polling::new(), us(0));
        polled(&mut polls, &mut now, 200, 1000);
        for _ in 0..100 {
            polls.over(|| panic!("the clock was asked"));
        }
        assert_eq!(polls.empty(now), Next::Sleep);
    }

    #[test]
    fn waits_that_are_given_up_in_vain_are_slept_through() {
        let (mut polls, mut now) = (Polling::new(), us(0));
        let mut polled = us(0);
        for _ in 0..10_000 {
            // Somebody looks in for 40 µs at a time, and nothing comes.
            let end = now + us(40);
            while now < end && polls.empty(now) != Next::Sleep {
                now += us(1);
                polled += us(1);
            }
            now = end;
            polls.given_up();
        }
        assert!(polled * 50 < now, "{polled:?} of {now:?}");
    }

    #[test]
    fn a_wait_that_is_slept_through_takes_nothing_from_what_others_learn_meanwhile() {
        let (shared, mut now) = (SharedPolling::new(), us(0));
        let mut polls = shared.begin();
        while polls.empty(now) != Next::Sleep {
            now += us(1);
        }
        let slept = shared.sleep(polls);
        assert_eq!(shared.begin().empty(now), Next::Poll);
        for _ in 0..1000 {
            let mut others = shared.begin();
            polled(&mut others, &mut now, 200, 1);
            shared.end(others, || now);
        }
        assert_eq!(shared.begin().empty(now), Next::Sleep, "it does not pay");
        shared.wake(slept, || now);
        assert_eq!(shared.begin().empty(now), Next::Sleep, "and they know");
    }

    #[test]
    fn threads_that_share_a_queue_do_not_take_each_other_for_neighbours() {
        let (mut polls, mut now) = (Polling::new(), us(0));
        let mut slept = 0;
        for wait in 0..1000_usize {
            // Either was preempted at some time, and not since then.
            let usage = [(3, 900), (500, 7)].map(|(preemptions, ran)| Usage {
                preemptions,
                ran: us(ran),
            })[wait % 2];
            polls.moved();
            let end = now + us(30);
            while now < end {
                match polls.empty(now) {
                    Next::Poll => {}
                    Next::Yield => {
                        let yielded = Yielded {
                            took: Duration::ZERO,
                            before: usage,
                            after: usage,
                        };
                        polls.gave_way(now, yielded);
                    }
                    Next::Sleep => {
                        slept += 1;
                        now = end;
                    }
                }
                now += Duration::from_nanos(50);
            }
            polls.over(|| now);
        }
        assert_eq!(slept, 0, "of 1000");
    }

    #[test]
    fn one_whose_processor_others_want_sleeps() {
        let (mut polls, mut now) = (Polling::new(), us(0));
        let mut yields = 0;
        for _ in 0..1000 {
            loop {
                match polls.empty(now) {
                    Next::Poll => now += Duration::from_nanos(25),
                    Next::Yield => {
                        yields += 1;
                        let took = us(100);
                        now += took;
                        let [before, after] =
                            [2 * yields, 2 * yields + 1].map(|preemptions| Usage {
                                preemptions,
                                ran: us(0),
                            });
                        let yielded = Yielded {
                            took,
                            before,
                            after,
                        };
                        polls.gave_way(now, yielded);
                    }
                    Next::Sleep => break,
                }
            }
            now += us(5);
            polls.over(|| now);
        }
        assert!(yields < 10, "{yields} times");
    }
}
