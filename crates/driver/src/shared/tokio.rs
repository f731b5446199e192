//! Tasks of a tokio runtime that await requests.

use std::io;

use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::shared::queue::Queue;
use crate::shared::readiness::Readiness;

/// A task that [drives](Queue::drive_in_tokio) a queue. Dropping this ends it.
#[must_use = "dropped, it drives the queue no more"]
#[derive(Debug)]
pub struct Driving {
    task: JoinHandle<()>,
}

impl Queue {
    /// Starts a task on the current runtime that completes requests whenever the device calls, and wakes the tasks that
    /// await them. One is enough for a queue; with several each does part of the work.
    ///
    /// While none runs, `.await` does not end unless another thread polls or waits on this queue.
    ///
    /// # Errors
    ///
    /// Outside a runtime, and when the machine lacks descriptors.
    ///
    /// # Panics
    ///
    /// In a runtime without I/O (`enable_io`).
    pub fn drive_in_tokio(&self) -> io::Result<Driving> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let readiness = self.readiness()?;
        // SAFETY: the descriptor of a `Readiness` is open, and the same, for as long as it lives.
        let readiness = unsafe { AsyncFd::register(readiness) }?;
        Ok(Driving {
            task: runtime.spawn(drive(readiness)),
        })
    }
}

/// Until the runtime ends.
async fn drive(readiness: AsyncFd<Readiness>) {
    while let Ok(mut ready) = readiness.readable().await {
        ready.clear_ready();
        readiness.get_ref().drive();
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
