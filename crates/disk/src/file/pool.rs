//! Threads that do what would block.
//!
//! They are started when there is more to do than there are idle ones, up to a limit, sleep without
//! a timeout when there is nothing to do, and end with the pool. Every decision is made under one
//! lock, so that no job can wait for a thread that is not woken.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use pollux_threads::{Kind, lock, spawn};
use tracing::warn;

use crate::{Admitted, Quota};

/// Threads that work off `J`s.
pub struct Pool<J: Send + 'static> {
    shared: Arc<Shared<J>>,
    limit: usize,
    /// How much is said of threads that cannot be started: each request may ask for one.
    log_quota: Quota,
}

struct Shared<J> {
    state: Mutex<PoolState<J>>,
    /// Notified once for each idle thread that is to take a job.
    arrived: Condvar,
    work: Box<dyn Fn(J) + Send + Sync>,
}

struct PoolState<J> {
    jobs: VecDeque<J>,
    /// Threads that wait at `arrived`, or were notified and have not run yet.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

impl<J: Send + 'static> Pool<J> {
    /// A pool without threads, which gets at most `limit`, each of which does `work`.
    pub fn new(limit: usize, work: impl Fn(J) + Send + Sync + 'static) -> Self {
        let state = PoolState {
            jobs: VecDeque::new(),
            idle: 0,
            threads: Vec::new(),
            closing: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            arrived: Condvar::new(),
            work: Box::new(work),
        });
        Self {
            shared,
            limit,
            log_quota: Quota::default(),
        }
    }

    /// Makes sure of one thread, so that every job will be done.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn ensure_thread(&self) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        if state.threads.is_empty() {
            let first = self.start()?;
            state.threads.push(first);
        }
        Ok(())
    }

    /// Hands over all of `jobs`, after [`Pool::ensure_thread`].
    pub fn submit(&self, jobs: &mut Vec<J>) {
        let mut state = lock(&self.shared.state);
        state.jobs.extend(jobs.drain(..));
        let waiting = state.jobs.len();
        let wake = waiting.min(state.idle);
        let start = (waiting - wake).min(self.limit - state.threads.len());
        for _ in 0..start {
            match self.start() {
                Ok(thread) => state.threads.push(thread),
                Err(error) => {
                    self.tell(&error, state.threads.len());
                    break;
                }
            }
        }
        drop(state);
        for _ in 0..wake {
            self.shared.arrived.notify_one();
        }
    }

    fn tell(&self, error: &io::Error, threads: usize) {
        if let Some(Admitted { withheld }) = self.log_quota.admits() {
            warn!(%error, threads, withheld, "cannot start another thread; going on with these");
        }
    }

    fn start(&self) -> io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        spawn(Kind::Pool, "pollux-file", move || {
            while let Some(job) = shared.next() {
                (shared.work)(job);
            }
        })
    }
}

impl<J> Shared<J> {
    /// Sleeps until there is a job; `None` when there is none and will be none.
    fn next(&self) -> Option<J> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closing {
                return None;
            }
            state.idle += 1;
            state = self
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Does what was handed over, then ends the threads and waits for them.
impl<J: Send + 'static> Drop for Pool<J> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closing = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.arrived.notify_all();
        for thread in threads {
            // A thread that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}

impl<J: Send + 'static> fmt::Debug for Pool<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.shared.state);
        f.debug_struct("Pool")
            .field("threads", &state.threads.len())
            .field("idle", &state.idle)
            .field("waiting", &state.jobs.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_are_started_on_demand_up_to_the_limit() {
        let together = Arc::new(Barrier::new(4));
        let meet = Arc::clone(&together);
        let pool = Pool::new(3, move |()| {
            meet.wait();
        });
        pool.ensure_thread().unwrap();
        assert_eq!(lock(&pool.shared.state).threads.len(), 1);
        // Each job blocks until three of them run and we are there.
        pool.submit(&mut vec![(); 3]);
        together.wait();
        pool.submit(&mut vec![(); 3]);
        together.wait();
        assert_eq!(lock(&pool.shared.state).threads.len(), 3);
    }

    #[test]
    fn what_was_handed_over_is_done_before_the_pool_ends() {
        let done = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&done);
        let pool = Pool::new(2, move |more| {
            count.fetch_add(more, Ordering::Relaxed);
        });
        pool.ensure_thread().unwrap();
        for _ in 0..100 {
            pool.submit(&mut vec![1; 10]);
        }
        drop(pool);
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    }
}
