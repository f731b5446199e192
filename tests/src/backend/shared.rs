//! What the test and the device's thread tell each other.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::plan::{Conduct, Silence};
use super::request::Part;

/// How long something that must come may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The disk has so many sectors from now on; the frontend is told.
    Resize(u64),
    /// The configuration space has this word there from now on; the frontend is told.
    Configure(usize, u32),
    /// The connection is closed, and nothing else.
    HangUp,
    /// After that: what is left of the session ends, and the next begins.
    LetGo,
    /// What the device is kicked by is full, and blocks those that write to it.
    BlockKicks,
    /// What it calls by is full.
    FillCalls,
    /// Requests in flight are written into, or not any more.
    Scribble(Option<u8>),
    /// Nothing, but it is counted that everything before it was done.
    Settle,
    /// The device goes.
    Stop,
}

/// A request that the device has and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Data that it may read.
    pub to_device: Vec<Part>,
    /// Data that it may write.
    pub to_driver: Vec<Part>,
}

/// What has happened so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Frontends that came.
    pub sessions: usize,
    /// Sessions that ended.
    pub over: usize,
    /// Messages that were not answered as they should be.
    pub silences: usize,
    /// Reads of the configuration by a frontend that could not have been told of a change.
    pub deaf_reads: usize,
    /// Requests that were taken.
    pub requests: usize,
    /// Used elements, true or not.
    pub ended: usize,
    /// Times that a kick was read.
    pub kicks: usize,
    /// Calls made for completions.
    pub calls: usize,
    /// Calls made for nothing.
    pub stray_calls: usize,
    /// Times that it was asked to settle.
    pub settled: usize,
    /// Times that all held requests were written into.
    pub scribbles: usize,
    /// What it has and has not ended.
    pub held: Vec<Held>,
    /// What the driver did that the specification does not allow.
    pub complaints: Vec<String>,
}

pub(super) struct Shared {
    conduct: Mutex<Conduct>,
    /// A message that is not answered as it should be.
    pub silence: Mutex<Option<(u32, Silence)>>,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// Ends the sleep of the device's thread.
    pub wake: OwnedFd,
}

impl Shared {
    pub fn new(wake: OwnedFd) -> Self {
        Self {
            conduct: Mutex::new(Conduct::Prompt),
            silence: Mutex::default(),
            seen: Mutex::default(),
            changed: Condvar::new(),
            wake,
        }
    }

    pub fn lock_conduct(&self) -> MutexGuard<'_, Conduct> {
        self.conduct.lock().expect("nobody panics with it")
    }

    pub fn conduct(&self) -> Conduct {
        *self.lock_conduct()
    }

    /// Has the device's thread look at everything once.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The device's thread is awake.
    pub fn awake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Something has happened.
    pub fn tell(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock().expect("nobody panics with it"));
        self.changed.notify_all();
    }

    pub fn complain(&self, complaint: &str) {
        self.tell(|seen| seen.complaints.push(complaint.to_owned()));
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    pub fn wait_until(&self, reached: impl Fn(&Seen) -> bool) -> Seen {
        let seen = self.seen.lock().expect("nobody panics with it");
        let ended = self
            .changed
            .wait_timeout_while(seen, PATIENCE, |seen| !reached(seen));
        let (guard, timeout) = ended.expect("nobody panics with it");
        let seen = guard.clone();
        drop(guard);
        assert!(!timeout.timed_out(), "after a minute still: {seen:?}");
        seen
    }
}
