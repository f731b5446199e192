//! The thread of a disk on which everything happens that blocks: opening, locking, resizing, closing.
//!
//! Its caller waits for as long as it likes: a cluster that cannot be reached holds up this thread and no other.
//! librbd's threads are started here, so they inherit what this kind of thread is allowed.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pollux_threads::{Kind, spawn};

/// Something to do.
pub enum Task {
    /// This.
    Run(Box<dyn FnOnce() + Send>),
    /// Nothing more.
    End,
}

/// Where tasks are sent to.
pub struct BlockingThread(Sender<Task>);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It took too long. What was asked for is done later, and then forgotten.
    Late,
    /// The thread has ended.
    Gone,
}

impl BlockingThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the machine has no room for it.
    pub fn start() -> io::Result<Self> {
        let (sender, tasks) = channel();
        spawn(Kind::Cluster, "rbd-blocking", move || work(&tasks))?;
        Ok(Self(sender))
    }

    /// Where others send tasks to.
    pub fn tasks(&self) -> Sender<Task> {
        self.0.clone()
    }

    /// Does `work` there, after all that was asked for before, and waits for its end.
    ///
    /// # Errors
    ///
    /// See [`NoAnswer`].
    pub fn ask<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (answer, answered) = channel();
        let task = Task::Run(Box::new(move || {
            // The caller may have left.
            let _ = answer.send(work());
        }));
        self.0.send(task).map_err(|_| NoAnswer::Gone)?;
        let answered = answered.recv_timeout(patience);
        answered.map_err(|error| match error {
            RecvTimeoutError::Timeout => NoAnswer::Late,
            RecvTimeoutError::Disconnected => NoAnswer::Gone,
        })
    }
}

impl Drop for BlockingThread {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.send(Task::End);
    }
}

fn work(tasks: &Receiver<Task>) {
    while let Ok(Task::Run(work)) = tasks.recv() {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_asked_is_done_in_turn_and_what_comes_late_is_not_waited_for() {
        let thread = BlockingThread::start().unwrap();
        let (go, wait) = channel::<()>();
        let late = thread.ask(Duration::from_millis(1), move || wait.recv());
        assert_eq!(late, Err(NoAnswer::Late));
        go.send(()).unwrap();
        assert_eq!(thread.ask(PATIENCE, || 7), Ok(7));
    }

    #[test]
    fn after_its_end_nothing_is_answered() {
        let thread = BlockingThread::start().unwrap();
        thread.tasks().send(Task::End).unwrap();
        assert_eq!(thread.ask(PATIENCE, || 7), Err(NoAnswer::Gone));
    }
}
