//! Waiting as the owner of a channel: polled, by calls, or for as long as looking pays and then by calls.

use std::io;
use std::time::{Duration, Instant};

use pollux_disk::wait::Sleeper;
use pollux_disk::{Armed, Channel, Completion, WaitPoint};
use rustix::time::{ClockId, clock_gettime};

use crate::look::{Look, Next};
use crate::thrift::Thrift;

/// How an owner waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It looks until something is there, and never sleeps.
    Polled,
    /// It sleeps unless something is there. Where that costs this thread less of its time for each request, as was
    /// measured lately, it looks before as if it were [`Waiting::Adaptive`].
    Call,
    /// It looks for as long as that has paid lately, then sleeps.
    #[default]
    Adaptive,
}

/// After so many looks in vain, some 20 µs, whoever else wants the processor may have it. Where there are
/// more pollers than processors, the server is among those who want it: eight pollers on two processors
/// made a hundredth of the requests without.
const POLITE: u32 = 1024;

/// One wait so far.
#[derive(Debug, Default)]
struct Wait {
    /// Looks in vain.
    looks: u32,
    slept: bool,
    /// When time is over.
    end: Option<Instant>,
}

/// The place where an owner of channels waits for them.
///
/// ```no_run
/// use pollux_disk::{Channel, Op, Request, Ticket};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pollux_driver::{Driver, Options, Waiter, Waiting};
///
/// let disk = Driver::connect("disk.sock".as_ref(), &Options::default())?;
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
    /// The longest look.
    most: Duration,
    look: Look,
    thrift: Thrift,
    sleeper: Sleeper,
    epoch: Instant,
}

impl Waiter {
    /// One that waits in that way.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new(waiting: Waiting) -> io::Result<Self> {
        let most = match waiting {
            // What a look costs is measured: it may last until a device that sleeps has answered.
            Waiting::Call => Look::DEFAULT_MOST * 2,
            Waiting::Polled | Waiting::Adaptive => Look::DEFAULT_MOST,
        };
        Ok(Self {
            waiting,
            most,
            look: Look::new(most),
            thrift: Thrift::new(),
            sleeper: Sleeper::new()?,
            epoch: Instant::now(),
        })
    }

    /// Looks for `most` at most, where it is not [`Waiting::Polled`]: zero for who wants to sleep at once, whatever
    /// that costs.
    #[must_use]
    pub const fn looking_for(mut self, most: Duration) -> Self {
        self.most = most;
        self.look = Look::new(most);
        self
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
                self.brought(count, wait.slept);
                return Ok(count);
            }
            if !self.pause(channel, &mut wait, timeout)? {
                self.look.given_up();
                return Ok(0);
            }
        }
    }

    /// A wait has brought so many requests.
    #[inline]
    fn brought(&mut self, count: usize, slept: bool) {
        if self.waiting == Waiting::Polled {
            return;
        }
        if self.waiting == Waiting::Adaptive {
            self.look.brought(count, slept);
            return;
        }
        // A look that has cost a try enough is not to go on because batches were large.
        self.look.brought(1, slept);
        if self.thrift.waited(count, own_time) {
            self.look = Look::new(self.most);
        }
    }

    /// Between two looks: sleeps, or does not; or says that time is over.
    #[cold]
    fn pause(
        &mut self,
        channel: &mut (impl Channel + ?Sized),
        wait: &mut Wait,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        wait.looks = wait.looks.wrapping_add(1);
        let mut left = None;
        if let Some(timeout) = timeout {
            let now = Instant::now();
            let end = *wait.end.get_or_insert(now + timeout);
            left = Some(end.saturating_duration_since(now));
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        let next = match self.waiting {
            Waiting::Polled => Next::Look,
            // Whoever has slept was woken for nothing, and sleeps on.
            Waiting::Call | Waiting::Adaptive if wait.slept => Next::Sleep,
            Waiting::Call if !self.thrift.looks() => Next::Sleep,
            Waiting::Call | Waiting::Adaptive => self.look.missed(|| self.epoch.elapsed()),
        };
        match next {
            Next::Look if wait.looks.is_multiple_of(POLITE) => std::thread::yield_now(),
            Next::Look => std::hint::spin_loop(),
            Next::Sleep => {
                wait.slept = true;
                self.sleep(channel, left)?;
            }
        }
        Ok(true)
    }

    /// Arms, looks once more, and sleeps unless that look found something.
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

/// What this thread has used of processors.
fn own_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
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
