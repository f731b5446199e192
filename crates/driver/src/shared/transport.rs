//! What is outside a shared queue's lock: its call descriptor, its doorbell, its timer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_disk::WaitPoint;
use pollux_disk::wait::{Sleeper, Watch};
use pollux_ring::RingIndex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::device::active_queue::ActiveQueue;
use crate::notify::call::Call;
use crate::notify::shared_fd::SharedFd;
use crate::options::Mixed;
use crate::shared::listeners::Point;
use crate::shared::parker::CallSleeper;
use crate::shared::parts::Transport;
use crate::shared::used_index::UsedIndex;

/// A sleep that calls end, by `epoll`.
#[derive(Debug)]
pub struct EpollSleeper(Sleeper);

impl EpollSleeper {
    /// One at the queue of `transport`.
    pub fn new(transport: &FdTransport) -> io::Result<Self> {
        let sleeper = Sleeper::new()?;
        transport.watched_by(sleeper.point())?;
        Ok(Self(sleeper))
    }
}

impl CallSleeper for EpollSleeper {
    type Handle = WaitPoint;

    fn handle(&self) -> WaitPoint {
        self.0.point().clone()
    }

    fn arm(&mut self) {
        self.0.arm();
    }

    fn sleep(&mut self) {
        // It fails by nothing but a descriptor that is not an epoll.
        let slept = self.0.sleep(None, |_| ());
        debug_assert!(slept.is_ok(), "{slept:?}");
    }

    fn wake(handle: &WaitPoint) {
        handle.wake();
    }
}

/// What is outside the lock.
#[derive(Debug)]
pub struct FdTransport {
    queue: ActiveQueue,
    used_index: Arc<UsedIndex>,
    timer: Option<CallTimer>,
}

/// Bounds how long a call may be suspended.
#[derive(Debug)]
struct CallTimer {
    timer: OwnedFd,
    deferred: Duration,
}

impl FdTransport {
    /// That of the queue at `queue`, whose used ring `used_index` sees.
    pub fn new(queue: ActiveQueue, used_index: Arc<UsedIndex>) -> io::Result<Self> {
        let timer = match queue.device().options().experiment.mixed {
            Mixed::SuspendedFor(deferred) => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                Some(CallTimer { timer, deferred })
            }
            Mixed::WhileNeeded => None,
        };
        Ok(Self {
            queue,
            used_index,
            timer,
        })
    }

    /// The queue.
    pub fn queue(&self) -> &ActiveQueue {
        &self.queue
    }
}

impl Point for WaitPoint {
    fn wake(&self) {
        WaitPoint::wake(self);
    }

    fn is(&self, other: &Self) -> bool {
        WaitPoint::is(self, other)
    }
}

impl Transport for FdTransport {
    type EventFd = SharedFd;
    type Point = WaitPoint;

    fn call(&self) -> &Call<SharedFd> {
        self.queue.call()
    }

    fn watched_by(&self, point: &WaitPoint) -> io::Result<()> {
        self.queue.watched_by(point)?;
        if let Some(timer) = &self.timer {
            let watched = point.watch(timer.timer.as_fd(), Watch::CHANNEL);
            watched.inspect_err(|_| self.unwatched_by(point))?;
        }
        Ok(())
    }

    fn unwatched_by(&self, point: &WaitPoint) {
        self.queue.unwatched_by(point);
        if let Some(timer) = &self.timer {
            // It fails only where the wait point's own descriptors are gone.
            let _ = point.unwatch(timer.timer.as_fd());
        }
    }

    #[inline]
    fn sees_more_than(&self, next: RingIndex) -> bool {
        self.used_index.sees_more_than(next, self.queue.device())
    }

    fn kick(&self) {
        self.queue.doorbell().ring();
    }

    fn start_timer(&self) {
        let Some(timer) = &self.timer else { return };
        let deferred = timer.deferred.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(deferred)
                .expect("calls are not suspended for 2^63 seconds"),
        };
        let set = timerfd_settime(&timer.timer, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    fn timer(&self) -> bool {
        let timer = self.timer.as_ref();
        timer.is_some_and(|timer| rustix::io::read(&timer.timer, &mut [0; 8]).is_ok())
    }

    #[inline]
    fn polled(&self, chains: u16) {
        let counts = self.queue.counts();
        counts.polls.add_shared(1);
        if chains == 0 {
            counts.empty_polls.add_shared(1);
        } else {
            counts.requests.add_shared(u64::from(chains));
        }
    }

    fn slept(&self) {
        self.queue.counts().sleeps.add_shared(1);
    }
}
