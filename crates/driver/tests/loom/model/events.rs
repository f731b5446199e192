//! What threads sleep on: an eventfd, a wait point, and what ends a sleep.

use std::sync::Arc;
use std::task::Wake;

use loom::sync::{Condvar, Mutex};
use pollux_disk::wait::Flag;
use pollux_driver::model::{CallSleeper, EventFd};

/// What ends a sleep, whether it comes before or after the sleep began.
#[derive(Debug, Default)]
pub struct Event {
    signals: Mutex<Signals>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Signals {
    signalled: bool,
    /// A call descriptor that is watched has become readable, and still is.
    called: bool,
}

impl Event {
    pub fn signal(&self) {
        self.signals.lock().unwrap().signalled = true;
        self.changed.notify_one();
    }

    /// The call descriptor is readable, or another thread has read it: `epoll` looks again before it ends a sleep.
    fn called(&self, readable: bool) {
        self.signals.lock().unwrap().called = readable;
        if readable {
            self.changed.notify_one();
        }
    }

    /// Loom reports a sleep that nothing ends as a deadlock: a lost wake-up.
    pub fn sleep(&self) {
        let mut signals = self.signals.lock().unwrap();
        while !(signals.signalled || signals.called) {
            signals = self.changed.wait(signals).unwrap();
        }
        *signals = Signals::default();
    }
}

/// The call descriptor: an eventfd, and where it ends sleeps.
#[derive(Debug, Default)]
pub struct CallFd {
    inside: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    signals: u64,
    points: Vec<Arc<Point>>,
}

impl CallFd {
    pub fn watched_by(&self, point: &Arc<Point>) {
        let mut inside = self.inside.lock().unwrap();
        point.event.called(inside.signals > 0);
        inside.points.push(Arc::clone(point));
    }

    pub fn unwatched_by(&self, point: &Arc<Point>) {
        let mut inside = self.inside.lock().unwrap();
        inside.points.retain(|other| !Arc::ptr_eq(point, other));
        point.event.called(false);
    }

    /// The device is lost, or another is there: each sleep ends at its own wait point.
    pub fn wake_always(&self) {
        let inside = self.inside.lock().unwrap();
        inside.points.iter().for_each(|point| point.event.signal());
    }
}

impl EventFd for CallFd {
    fn read(&self) -> u64 {
        let mut inside = self.inside.lock().unwrap();
        if inside.signals > 0 {
            inside
                .points
                .iter()
                .for_each(|point| point.event.called(false));
        }
        std::mem::take(&mut inside.signals)
    }

    fn signal(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.signals += 1;
        inside
            .points
            .iter()
            .for_each(|point| point.event.called(true));
    }
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.signal();
    }
}

/// A wait point: its flag is the real one. Calls end the sleep whether it is set or not.
#[derive(Debug, Default)]
pub struct Point {
    pub flag: Flag,
    pub event: Event,
}

impl Point {
    /// Sleeps until the device calls.
    pub fn hear(&self) {
        self.event.sleep();
    }
}

impl Wake for Point {
    fn wake(self: Arc<Self>) {
        ModelSleeper::wake(&self);
    }
}

/// A handle on one.
#[derive(Clone)]
pub struct Handle(pub Arc<Point>);

impl pollux_driver::model::Point for Handle {
    fn wake(&self) {
        ModelSleeper::wake(&self.0);
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The sleep at it that calls end.
pub struct ModelSleeper(pub Arc<Point>);

impl CallSleeper for ModelSleeper {
    type Handle = Arc<Point>;

    fn handle(&self) -> Arc<Point> {
        Arc::clone(&self.0)
    }

    fn arm(&mut self) {
        self.0.flag.arm();
    }

    fn sleep(&mut self) {
        self.0.event.sleep();
        self.0.flag.disarm();
    }

    fn wake(handle: &Arc<Point>) {
        if handle.flag.take() {
            handle.event.signal();
        }
    }
}
