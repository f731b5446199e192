//! The one place where a thread sleeps.
//!
//! Kicks, disk completions, thread pools and control messages all end a sleep here. A [`Sleeper`]
//! belongs to the thread that sleeps; [`WaitPoint`]s, its handles, to all that may wake it.
//! Waking a thread that is awake costs a fence and a load: only sleepers are woken.

mod flag;
mod neighbours;
mod window;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pollux_threads::processor;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

pub use flag::Flag;
use neighbours::give_way_beside;
pub use neighbours::{Neighbours, Yielded, give_way};
pub use window::Window;

/// What a watched descriptor is called when it ends a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(pub u64);

impl Watch {
    /// For descriptors of a channel: their owner polls every channel when it wakes, so they need
    /// no name of their own.
    pub const CHANNEL: Self = Self(u64::MAX - 1);
    const WAKE: Self = Self(u64::MAX);
}

/// What `epoll_wait` has reported, and the room that is left.
type Reported<'reports> = (
    &'reports mut [epoll::Event],
    &'reports mut [MaybeUninit<epoll::Event>],
);

/// How many descriptors one wake-up reports at most; the others report at the next.
const REPORTS: usize = 64;

#[derive(Debug)]
struct Point {
    flag: Flag,
    event: OwnedFd,
    epoll: OwnedFd,
    /// Where the owner runs, as far as is known; else a processor that there is not.
    processor: AtomicUsize,
    /// Has a thread that works for the owner run there, while the owner was awake?
    has_helped: AtomicBool,
}

/// A handle on a sleeper: wakes it, and lets descriptors wake it.
#[derive(Clone, Debug)]
pub struct WaitPoint(Arc<Point>);

impl WaitPoint {
    /// Ends the sleep of the owner, if it sleeps or is about to.
    ///
    /// What it is to find must be published before.
    pub fn wake(&self) {
        if !self.rouse() && processor() == Some(self.0.processor.load(Ordering::Relaxed)) {
            self.0.has_helped.store(true, Ordering::Relaxed);
        }
    }

    /// As [`WaitPoint::wake`], by a thread that is no helper. Did the owner sleep?
    pub(crate) fn rouse(&self) -> bool {
        let sleeps = self.0.flag.take();
        if sleeps {
            self.wake_always();
        }
        sleeps
    }

    /// Is it a handle on the same sleeper?
    #[must_use]
    #[doc(hidden)] // for drivers, which are another package
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the owner's sleep, or else the next one, armed or not: for what seldom happens, and must be heard whatever
    /// became of other descriptors.
    #[doc(hidden)] // as above
    pub fn wake_always(&self) {
        // It can fail only by `EAGAIN`, when 2^64 wake-ups are unread: the sleeper wakes anyway.
        let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
    }

    /// Lets `fd` end the owner's sleep each time it becomes readable anew (edge-triggered), until
    /// [`WaitPoint::unwatch`]. One that is never read, or whose other end is closed, wakes once.
    ///
    /// # Errors
    ///
    /// What `epoll_ctl` says: `EEXIST` for a descriptor that is watched, `EPERM` for a file that is
    /// always readable.
    pub fn watch(&self, fd: BorrowedFd<'_>, name: Watch) -> io::Result<()> {
        let edges = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(
            &self.0.epoll,
            fd,
            EventData::new_u64(name.0),
            edges,
        )?)
    }

    /// Takes [`WaitPoint::watch`] back.
    ///
    /// # Errors
    ///
    /// `ENOENT` for a descriptor that is not watched.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.0.epoll, fd)?)
    }
}

/// The one descriptor that is readable when the owner, once armed, has a reason to wake: for owners
/// that sleep in an event loop of their own.
impl AsFd for WaitPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.epoll.as_fd()
    }
}

/// The sleeping side, one a thread.
#[derive(Debug)]
pub struct Sleeper {
    point: WaitPoint,
    /// For how long, the last time.
    slept: Duration,
}

impl Sleeper {
    /// A new place to sleep.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &event,
            EventData::new_u64(Watch::WAKE.0),
            EventFlags::IN,
        )?;
        let point = WaitPoint(Arc::new(Point {
            flag: Flag::default(),
            event,
            epoll,
            processor: AtomicUsize::new(usize::MAX),
            has_helped: AtomicBool::new(false),
        }));
        Ok(Self {
            point,
            slept: Duration::ZERO,
        })
    }

    /// A handle for others.
    #[must_use]
    pub fn point(&self) -> &WaitPoint {
        &self.point
    }

    /// Announces the sleep. After it the owner polls once more everything it waits for, and then
    /// either calls [`Sleeper::sleep`] or, having found something, [`Sleeper::disarm`].
    pub fn arm(&self) {
        self.point.0.flag.arm();
    }

    /// Takes [`Sleeper::arm`] back.
    pub fn disarm(&self) {
        self.point.0.flag.disarm();
    }

    /// As [`give_way`], but a thread that runs here for the owner, and then [wakes](WaitPoint::wake) it, is no other: a
    /// disk's own thread takes the processor for each request, and polls go on all the same.
    #[must_use]
    pub fn give_way(&self) -> Yielded {
        let point = &self.point.0;
        let yielded = give_way_beside(|| point.has_helped.swap(false, Ordering::Relaxed));
        let here = processor().unwrap_or(usize::MAX);
        point.processor.store(here, Ordering::Relaxed);
        yielded
    }

    /// Sleeps until it is woken, a watched descriptor is readable, or `timeout` is over, and names to
    /// `woken` each watched descriptor that is readable.
    ///
    /// # Errors
    ///
    /// None in practice: a signal only ends the sleep early.
    pub fn sleep(&mut self, timeout: Option<Duration>, woken: impl FnMut(Watch)) -> io::Result<()> {
        let timeout = timeout.map(|t| Timespec::try_from(t).expect("no wait is 2^63 seconds long"));
        let since = Instant::now();
        let mut reports = [const { MaybeUninit::<epoll::Event>::uninit() }; REPORTS];
        let reported = match timeout {
            None => epoll::wait(&self.point.0.epoll, &mut reports, None),
            Some(timeout) => self.wait_until(&timeout, &mut reports),
        };
        self.slept = since.elapsed();
        self.disarm();
        self.tell(reported, woken)
    }

    /// How long the last sleep took.
    #[must_use]
    pub fn slept(&self) -> Duration {
        self.slept
    }

    /// Names what would end a sleep now, for an owner that is awake and stays so for long. A system call.
    ///
    /// # Errors
    ///
    /// None in practice.
    pub fn hear(&mut self, woken: impl FnMut(Watch)) -> io::Result<()> {
        let mut reports = [const { MaybeUninit::<epoll::Event>::uninit() }; REPORTS];
        let at_once = Some(&Timespec::default());
        let reported = epoll::wait(&self.point.0.epoll, &mut reports, at_once);
        self.tell(reported, woken)
    }

    fn tell(
        &self,
        reported: Result<Reported<'_>, Errno>,
        mut woken: impl FnMut(Watch),
    ) -> io::Result<()> {
        let reported = match reported {
            Ok((reported, _)) => reported,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for report in reported {
            match Watch(report.data.u64()) {
                Watch::WAKE => {
                    // Non-blocking; `EAGAIN` only where a wake-up was read before.
                    let _ = rustix::io::read(&self.point.0.event, &mut [0; 8]);
                }
                Watch::CHANNEL => {}
                name => woken(name),
            }
        }
        Ok(())
    }

    /// `epoll_wait` counts in whole milliseconds, which are long for a request, and not every kernel has
    /// `epoll_pwait2`: so it is waited by `ppoll`, in nanoseconds, and then asked what there is.
    fn wait_until<'reports>(
        &self,
        timeout: &Timespec,
        reports: &'reports mut [MaybeUninit<epoll::Event>; REPORTS],
    ) -> Result<Reported<'reports>, Errno> {
        let epoll = &self.point.0.epoll;
        poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(timeout))?;
        epoll::wait(epoll, reports, Some(&Timespec::default()))
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::*;

    fn sleep(sleeper: &mut Sleeper) -> Vec<u64> {
        let mut names = Vec::new();
        sleeper.sleep(None, |name| names.push(name.0)).unwrap();
        names
    }

    #[test]
    fn a_wake_between_arming_and_sleeping_is_not_lost() {
        let mut sleeper = Sleeper::new().unwrap();
        sleeper.arm();
        sleeper.point().wake();
        assert!(sleep(&mut sleeper).is_empty());
    }

    #[test]
    fn waking_somebody_awake_writes_nothing() {
        let mut sleeper = Sleeper::new().unwrap();
        sleeper.point().wake();
        sleeper.arm();
        let started = sleeper
            .point()
            .0
            .event
            .as_fd()
            .try_clone_to_owned()
            .unwrap();
        assert_eq!(rustix::io::read(&started, &mut [0; 8]), Err(Errno::AGAIN));
        sleeper.sleep(Some(Duration::ZERO), |_| ()).unwrap();
    }

    #[test]
    fn an_alarm_ends_the_next_sleep_of_one_that_is_awake() {
        let mut sleeper = Sleeper::new().unwrap();
        sleeper.point().wake_always();
        sleeper.arm();
        assert!(sleep(&mut sleeper).is_empty());
        sleeper.point().wake();
        sleeper.arm();
        sleeper.point().wake_always();
        assert!(sleep(&mut sleeper).is_empty());
    }

    #[test]
    fn a_watched_descriptor_ends_the_sleep_by_name() {
        let mut sleeper = Sleeper::new().unwrap();
        let event = eventfd(1, EventfdFlags::empty()).unwrap();
        sleeper.point().watch(event.as_fd(), Watch(7)).unwrap();
        sleeper.arm();
        assert_eq!(sleep(&mut sleeper), [7]);
        sleeper.point().unwatch(event.as_fd()).unwrap();
        sleeper.arm();
        let mut names = Vec::new();
        sleeper
            .sleep(Some(Duration::ZERO), |name| names.push(name))
            .unwrap();
        assert!(names.is_empty());
    }

    #[test]
    fn a_sleep_with_an_end_reports_what_woke_it_before() {
        let mut sleeper = Sleeper::new().unwrap();
        let event = eventfd(1, EventfdFlags::empty()).unwrap();
        sleeper.point().watch(event.as_fd(), Watch(7)).unwrap();
        for timeout in [Duration::from_secs(3600), Duration::from_nanos(1)] {
            rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
            let mut names = Vec::new();
            sleeper.arm();
            sleeper
                .sleep(Some(timeout), |name| names.push(name.0))
                .unwrap();
            assert_eq!(names, [7], "{timeout:?}");
        }
    }

    #[test]
    fn a_thread_helps_that_runs_on_the_processor_of_an_owner_that_is_awake() {
        let on = processor().unwrap();
        let helps = move |here: bool, sleeps: bool, wake: fn(&WaitPoint)| {
            let sleeper = Sleeper::new().unwrap();
            let _ = sleeper.give_way();
            let point = sleeper.point().clone();
            let there = if here { on } else { usize::MAX };
            point.0.processor.store(there, Ordering::Relaxed);
            if sleeps {
                sleeper.arm();
            }
            wake(&point);
            point.0.has_helped.load(Ordering::Relaxed)
        };
        std::thread::spawn(move || {
            let mut here = CpuSet::new();
            here.set(on);
            sched_setaffinity(None, &here).unwrap();
            assert!(helps(true, false, WaitPoint::wake));
            assert!(!helps(false, false, WaitPoint::wake));
            assert!(!helps(true, true, WaitPoint::wake));
            assert!(!helps(true, false, |point| assert!(!point.rouse())));
            assert!(!helps(true, true, |point| assert!(point.rouse())));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn another_thread_ends_the_sleep() {
        let mut sleeper = Sleeper::new().unwrap();
        let point = sleeper.point().clone();
        sleeper.arm();
        let waker = std::thread::spawn(move || point.wake());
        assert!(sleep(&mut sleeper).is_empty());
        waker.join().unwrap();
    }
}
