//! Threads that sleep over a request.

use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use pollux_tests::process::{Process, eventually};

/// A thread that was asleep when this was made.
pub struct Asleep {
    thread: JoinHandle<()>,
    id: u32,
}

/// Does `what` on a thread of its own, and waits until that sleeps.
pub fn asleep(what: impl FnOnce() + Send + 'static) -> Asleep {
    let (tell, told) = channel();
    let thread = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        what();
    });
    let id = told.recv().unwrap().as_raw_nonzero().get().unsigned_abs();
    let asleep = Asleep { thread, id };
    asleep.wait_for_sleep();
    asleep
}

impl Asleep {
    fn wait_for_sleep(&self) {
        let check = || assert!(!self.is_over(), "it ends instead of going to sleep");
        Process::new(std::process::id()).wait_for_sleep(self.id, check);
    }

    /// It sleeps still, and nothing is under way that would wake it.
    pub fn sleeps_on(&self) {
        self.wait_for_sleep();
    }

    /// Has it ended?
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until it has ended.
    pub fn end(self) {
        eventually(|| self.is_over(), || format!("thread {} sleeps", self.id));
        self.thread.join().expect("its message is above");
    }
}
