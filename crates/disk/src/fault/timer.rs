//! Wakes the owner of a channel at a moment; makes no sound otherwise.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::WaitPoint;
use crate::wait::Watch;

/// A timer that is watched at a wait point.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    wait: WaitPoint,
    /// What it is set to, and has not been taken back.
    set: Option<Instant>,
}

impl Timer {
    /// A timer that wakes `wait`.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new(wait: &WaitPoint) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        wait.watch(fd.as_fd(), Watch::CHANNEL)?;
        Ok(Self {
            fd,
            wait: wait.clone(),
            set: None,
        })
    }

    /// Wakes the sleeper at `due`, and at no other time. `None`: not at all.
    pub fn set(&mut self, due: Option<Instant>) {
        if self.set == due {
            return;
        }
        self.set = due;
        let zero = Timespec::default();
        let it_value = due.map_or(zero, |due| {
            let left = due.saturating_duration_since(Instant::now());
            // Zero would stop it; what is due now comes in a nanosecond.
            let left = left.max(std::time::Duration::from_nanos(1));
            Timespec::try_from(left).expect("no wait is 2^63 seconds long")
        });
        let once = Itimerspec {
            it_interval: zero,
            it_value,
        };
        // Setting it takes back what it has said and was not heard. The descriptor is a timer and
        // the time is valid, so it cannot fail.
        let set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "a timer of our own can be set");
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // It is watched from the start.
        let _ = self.wait.unwatch(self.fd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::wait::Sleeper;

    fn readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|timeout| Timespec::try_from(timeout).unwrap());
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref()).unwrap() > 0
    }

    #[test]
    fn it_wakes_the_sleeper_each_time_it_is_set_and_is_silent_otherwise() {
        let mut sleeper = Sleeper::new().unwrap();
        let mut timer = Timer::new(sleeper.point()).unwrap();
        for _ in 0..3 {
            timer.set(Some(Instant::now() + Duration::from_millis(1)));
            // Nothing else can end it.
            sleeper.arm();
            sleeper.sleep(None, |_| ()).unwrap();
            timer.set(None);
            assert!(!readable(sleeper.point().as_fd(), Some(Duration::ZERO)));
        }
    }

    #[test]
    fn what_it_said_and_nobody_heard_is_taken_back() {
        let sleeper = Sleeper::new().unwrap();
        let mut timer = Timer::new(sleeper.point()).unwrap();
        timer.set(Some(Instant::now()));
        assert!(readable(sleeper.point().as_fd(), None));
        timer.set(None);
        assert!(!readable(sleeper.point().as_fd(), Some(Duration::ZERO)));
        drop(timer);
        assert!(!readable(sleeper.point().as_fd(), Some(Duration::ZERO)));
    }
}
