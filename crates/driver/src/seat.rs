//! What is outside a shared queue's lock: its call descriptor, its doorbell, its alarm.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pollux_disk::WaitPoint;
use pollux_disk::wait::{Sleeper, Watch};
use pollux_ring::RingIndex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::options::Mixed;
use crate::place::Place;
use crate::shared::{Call, Outside, Point, Seat};
use crate::sight::Sight;

/// The seat: a sleep that calls end.
#[derive(Debug)]
pub struct CallSeat(Sleeper);

impl CallSeat {
    /// One at the queue of `edge`.
    pub fn new(edge: &Edge) -> io::Result<Self> {
        let sleeper = Sleeper::new()?;
        edge.watched_by(sleeper.point())?;
        Ok(Self(sleeper))
    }
}

impl Seat for CallSeat {
    type Bell = WaitPoint;

    fn bell(&self) -> WaitPoint {
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

    fn ring(bell: &WaitPoint) {
        bell.wake();
    }
}

/// What is outside the lock.
#[derive(Debug)]
pub struct Edge {
    place: Place,
    sight: Arc<Sight>,
    alarm: Option<Alarm>,
}

/// Bounds how long a call may be suspended.
#[derive(Debug)]
struct Alarm {
    timer: OwnedFd,
    after: Duration,
}

impl Edge {
    /// That of the queue at `place`, whose used ring `sight` sees.
    pub fn new(place: Place, sight: Arc<Sight>) -> io::Result<Self> {
        let alarm = match place.device().options().mixed {
            Mixed::SuspendedFor(after) => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                Some(Alarm { timer, after })
            }
            Mixed::WhileNeeded => None,
        };
        Ok(Self {
            place,
            sight,
            alarm,
        })
    }

    /// The queue.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Point for WaitPoint {
    fn wake(&self) {
        WaitPoint::wake(self);
    }

    fn is(&self, other: &Self) -> bool {
        self.as_fd().as_raw_fd() == other.as_fd().as_raw_fd()
    }
}

impl Outside for Edge {
    type EventFd = OwnedFd;
    type Point = WaitPoint;

    fn call(&self) -> &Call<OwnedFd> {
        self.place.call()
    }

    fn watched_by(&self, point: &WaitPoint) -> io::Result<()> {
        point.watch(self.call().fd().as_fd(), Watch::CHANNEL)?;
        if let Some(alarm) = &self.alarm {
            let watched = point.watch(alarm.timer.as_fd(), Watch::CHANNEL);
            watched.inspect_err(|_| self.unwatched_by(point))?;
        }
        Ok(())
    }

    fn unwatched_by(&self, point: &WaitPoint) {
        // They fail only where the wait point's own descriptors are gone.
        let _ = point.unwatch(self.call().fd().as_fd());
        if let Some(alarm) = &self.alarm {
            let _ = point.unwatch(alarm.timer.as_fd());
        }
    }

    #[inline]
    fn sees_more_than(&self, next: RingIndex) -> bool {
        self.sight.sees_more_than(next, self.place.device())
    }

    fn kick(&self) {
        self.place.doorbell().ring();
    }

    fn set_alarm(&self) {
        let Some(alarm) = &self.alarm else { return };
        let after = alarm.after.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(after).expect("nobody suspends calls for 2^63 seconds"),
        };
        let set = timerfd_settime(&alarm.timer, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    fn alarm(&self) -> bool {
        let alarm = self.alarm.as_ref();
        alarm.is_some_and(|alarm| rustix::io::read(&alarm.timer, &mut [0; 8]).is_ok())
    }

    #[inline]
    fn looked(&self, chains: u16) {
        let counts = self.place.counts();
        counts.looks.add_shared(1);
        if chains == 0 {
            counts.empty_looks.add_shared(1);
        } else {
            counts.requests.add_shared(u64::from(chains));
        }
    }

    fn slept(&self) {
        self.place.counts().sleeps.add_shared(1);
    }
}
