//! Calls for nothing, and calls that are taken back.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::plan::Calls;
use super::shared::Shared;

/// A thread that writes, or reads, every call descriptor again and again, for as long as this lives.
pub(super) struct Stray {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Common {
    calls: Mutex<Vec<Arc<OwnedFd>>>,
    over: AtomicBool,
}

impl Stray {
    /// One, if there is to be one.
    pub fn start(shared: &Arc<Shared>, calls: Calls) -> Option<Self> {
        let common = Arc::new(Common::default());
        let (mine, shared) = (Arc::clone(&common), Arc::clone(shared));
        let thread = match calls {
            Calls::AsAsked | Calls::Always => return None,
            Calls::AndForNothing => std::thread::spawn(move || mine.call(&shared)),
            Calls::Stolen => std::thread::spawn(move || mine.steal()),
        };
        Some(Self {
            common,
            thread: Some(thread),
        })
    }

    /// From now on it is these.
    pub fn set(&self, calls: Vec<Arc<OwnedFd>>) {
        *self.common.calls.lock().expect("nobody panics with it") = calls;
    }
}

impl Common {
    fn call(&self, shared: &Shared) {
        while !self.over.load(Ordering::Relaxed) {
            let calls = self.calls.lock().expect("nobody panics with it").clone();
            for call in &calls {
                let _ = rustix::io::write(call.as_fd(), &1u64.to_ne_bytes());
            }
            shared.tell(|seen| seen.stray_calls += calls.len());
            // There are fewer processors than threads here: somebody has to do the work.
            std::thread::yield_now();
        }
    }

    fn steal(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let calls = self.calls.lock().expect("nobody panics with it");
            for call in calls.iter() {
                let _ = rustix::io::read(call.as_fd(), &mut [0; 8]);
            }
        }
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        self.common.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("its message is above");
        }
    }
}
