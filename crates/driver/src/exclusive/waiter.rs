//! Waiting as the owner of a channel: polled, by calls, or for as long as polling pays and then by calls.

use std::io;
use std::time::{Duration, Instant};

use pollux_disk::wait::{Sleeper, give_way};
use pollux_disk::{Armed, Channel, Completion, WaitPoint};

use crate::notify::polling::{Next, Polling};

/// How an owner waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// It polls until something is there, and never sleeps.
    Polled,
    /// It sleeps unless something is there.
    Call,
    /// It polls for as long as that has paid lately, then sleeps.
    #[default]
    Adaptive,
}

/// One wait so far.
#[derive(Debug, Default)]
struct Wait {
    slept: bool,
    /// When time is over.
    end: Option<Instant>,
}

/// The place where an owner of channels waits for them.
///
/// ```no_run
/// use pollux_disk::{Channel, Op, Request, Ticket};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pollux_driver::{Driver, Waiter, Waiting};
///
/// let disk = Driver::builder("disk.sock").connect()?;
/// let mut waiter = Waiter::new(Waiting::Adaptive)?;
/// let mut channel = disk.channel(waiter.point())?;
/// let _ = channel.queue(Request { ticket: Ticket(1), op: Op::Flush });
/// channel.submit();
/// waiter.wait(&mut channel, None, &mut |done| println!("{done:?}"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Waiter {
    waiting: Waiting,
    polls: Polling,
    sleeper: Sleeper,
    started: Instant,
}

impl Waiter {
    /// One that waits in that way.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new(waiting: Waiting) -> io::Result<Self> {
        Ok(Self {
            waiting,
            polls: Polling::new(),
            sleeper: Sleeper::new()?,
            started: Instant::now(),
        })
    }

    /// What the channels are to be opened with.
    #[must_use]
    pub fn point(&self) -> &WaitPoint {
        self.sleeper.point()
    }

    /// Waits until at least one request of `channel` has ended, or `timeout` is over, and hands all that
    /// have ended to `done`; returns how many. It submits what reaping queued.
    ///
    /// # Errors
    ///
    /// None in practice: those of `epoll_wait`.
    #[inline]
    pub fn wait(
        &mut self,
        channel: &mut (impl Channel + ?Sized),
        timeout: Option<Duration>,
        done: &mut (impl FnMut(Completion) + ?Sized),
    ) -> io::Result<usize> {
        let mut wait = Wait::default();
        loop {
            let count = reap(channel, done);
            if count > 0 {
                self.polls.over(|| self.started.elapsed());
                return Ok(count);
            }
            if !self.pause(channel, &mut wait, timeout)? {
                self.polls.given_up();
                return Ok(0);
            }
        }
    }

    /// Between two polls: sleeps, or does not; or says that time is over.
    #[cold]
    fn pause(
        &mut self,
        channel: &mut (impl Channel + ?Sized),
        wait: &mut Wait,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let mut left = None;
        if let Some(timeout) = timeout {
            let now = Instant::now();
            // One that no clock counts to does not end.
            wait.end = wait.end.or_else(|| now.checked_add(timeout));
            left = wait.end.map(|end| end.saturating_duration_since(now));
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        match self.next(wait) {
            Next::Poll => std::hint::spin_loop(),
            Next::Yield => {
                let yielded = give_way();
                self.polls.gave_way(self.started.elapsed(), yielded);
            }
            Next::Sleep => {
                wait.slept = true;
                self.sleep(channel, left)?;
            }
        }
        Ok(true)
    }

    /// What follows an empty poll.
    fn next(&mut self, wait: &Wait) -> Next {
        match self.waiting {
            Waiting::Polled => self.polls.polls_on(),
            Waiting::Call => Next::Sleep,
            // A wait that has slept was woken for nothing, and sleeps on.
            Waiting::Adaptive if wait.slept => Next::Sleep,
            Waiting::Adaptive => self.polls.empty(self.started.elapsed()),
        }
    }

    /// Arms, polls once more, and sleeps unless that poll found something.
    fn sleep(
        &mut self,
        channel: &mut (impl Channel + ?Sized),
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.sleeper.arm();
        match channel.arm() {
            Armed::Idle => self.sleeper.sleep(timeout, |_| ()),
            Armed::Pending | Armed::CannotSleep => {
                self.sleeper.disarm();
                Ok(())
            }
        }
    }
}

/// Reaps and submits; returns how many requests have ended.
#[inline]
fn reap(
    channel: &mut (impl Channel + ?Sized),
    done: &mut (impl FnMut(Completion) + ?Sized),
) -> usize {
    let mut count = 0;
    channel.reap(&mut |completion| {
        count += 1;
        done(completion);
    });
    channel.submit();
    count
}
