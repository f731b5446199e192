//! When is data on stable storage, and what if it failed once?
//!
//! The kernel tells a failed write-back once: the first `fdatasync` that notices gets the error, and
//! the next one succeeds, although the data is lost. Two at the same time are worse: which of them
//! gets the error is chance, and the other succeeds *for the same data*. So at most one runs at a
//! time, and a failure is remembered until the disk is opened anew. For the same reason a write that
//! must be stable is a write and then a sync, not `RWF_DSYNC`, which takes the error just as well.
//!
//! One at a time costs little: whoever arrives meanwhile shares the next, however many they are.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// Syncs one file, one at a time.
#[derive(Debug, Default)]
pub struct Syncer {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many syncs were started; they end in the same order.
    started: u64,
    ended: u64,
    failed: Option<Errno>,
}

impl Syncer {
    /// Returns once a `sync` has ended that began after this was called: one of our own, or that of
    /// somebody else who came at the same time.
    ///
    /// # Errors
    ///
    /// What `sync` said, now or ever before.
    pub fn sync(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.lock();
        let needed = state.started + 1;
        loop {
            if let Some(error) = state.failed {
                return Err(error);
            }
            if state.ended >= needed {
                return Ok(());
            }
            if state.started == state.ended {
                break;
            }
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.started += 1;
        drop(state);
        let result = sync();
        let mut state = self.lock();
        state.ended += 1;
        state.failed = result.err();
        self.ended.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_failure_is_remembered() {
        let syncer = Syncer::default();
        assert_eq!(syncer.sync(|| Ok(())), Ok(()));
        assert_eq!(syncer.sync(|| Err(Errno::IO)), Err(Errno::IO));
        let again = syncer.sync(|| unreachable!("the kernel would say that all is well"));
        assert_eq!(again, Err(Errno::IO));
    }

    #[test]
    fn those_who_come_during_a_sync_share_the_next_one() {
        let syncer = Syncer::default();
        let runs = AtomicU64::new(0);
        let run = || {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        thread::scope(|scope| {
            let (begun, has_begun) = mpsc::channel();
            let (end, may_end) = mpsc::channel();
            let syncer = &syncer;
            scope.spawn(move || {
                syncer.sync(|| {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    run()
                })
            });
            has_begun.recv().unwrap();
            let others: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || syncer.sync(run)))
                .collect();
            // Some may come later than this and run one of their own.
            thread::yield_now();
            end.send(()).unwrap();
            for other in others {
                assert_eq!(other.join().unwrap(), Ok(()));
            }
        });
        let runs = runs.load(Ordering::Relaxed);
        assert!((2..=9).contains(&runs), "{runs}");
    }

    #[test]
    fn a_failure_is_told_to_everybody_who_waited_for_it() {
        let syncer = Syncer::default();
        let calls = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let result = syncer.sync(|| {
                        // As the kernel does it: the error is told once.
                        match calls.fetch_add(1, Ordering::Relaxed) {
                            0 => Err(Errno::NOSPC),
                            _ => Ok(()),
                        }
                    });
                    assert_eq!(result, Err(Errno::NOSPC));
                });
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
