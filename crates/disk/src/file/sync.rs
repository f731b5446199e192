//! When is data on stable storage, and what if it failed once?
//!
//! The kernel tells a failed write-back once: the first `fdatasync` that notices gets the error, and
//! the next one succeeds, although the data is lost. Two at the same time are worse: which of them
//! gets the error is chance, and the other succeeds *for the same data*. So at most one runs at a
//! time, and a failure is remembered until the disk is opened anew. For the same reason a write that
//! must be stable is a write and then a sync, not `RWF_DSYNC`, which takes the error just as well.
//!
//! One at a time costs little: all that arrive meanwhile share the next, however many they are. No thread
//! blocks for it: they leave their address, and the one thread that syncs tells them.

use std::sync::Mutex;

use pollux_threads::lock;

use rustix::io::Errno;

use crate::inbox::Address;
use crate::{Completion, Failure, Ticket};

/// When is a request complete?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Once it is done.
    Done,
    /// Once a sync that began after it was done has ended.
    Synced,
}

/// Syncs one file, one at a time.
#[derive(Debug, Default)]
pub struct Syncer {
    state: Mutex<SyncState>,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Does a thread lead?
    led: bool,
    /// Those for which the sync that is running, if any, comes too early.
    waiting: Vec<Waiter>,
    failed: Option<Errno>,
}

/// A request that ends once what was written before is stable.
#[derive(Debug)]
pub struct Waiter {
    pub ticket: Ticket,
    pub to: Address,
}

impl Waiter {
    fn end(&self, result: Result<(), Errno>) {
        self.to.deliver(Completion {
            ticket: self.ticket,
            result: result.map_err(Failure::Io),
        });
    }
}

/// What became of a [`Waiter`].
#[must_use = "without a leader no request is told"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It will be told. The caller sees to it that a thread that may block calls [`Syncer::lead`].
    Leader,
    /// It will be told.
    Follower,
    /// It has failed already, and is told nothing.
    Failed(Errno),
}

impl Syncer {
    /// Tells `waiter` once a sync has ended that began after this was called.
    pub fn join(&self, waiter: Waiter) -> Joined {
        let mut state = lock(&self.state);
        if let Some(error) = state.failed {
            return Joined::Failed(error);
        }
        state.waiting.push(waiter);
        if state.led {
            return Joined::Follower;
        }
        state.led = true;
        Joined::Leader
    }

    /// Calls `sync` until none waits any more, and tells each of those that wait how it went: what it said
    /// for them, or for any before.
    pub fn lead(&self, mut sync: impl FnMut() -> Result<(), Errno>) {
        loop {
            let mut state = lock(&self.state);
            let waiters = std::mem::take(&mut state.waiting);
            if waiters.is_empty() {
                state.led = false;
                return;
            }
            let failed = state.failed;
            drop(state);
            let result = failed.map_or_else(&mut sync, Err);
            if let Err(error) = result {
                // Before any is told: one that knows of it and asks again shall hear it again.
                lock(&self.state).failed = Some(error);
            }
            for waiter in waiters {
                waiter.end(result);
            }
        }
    }

    /// Calls `sync` while none waits for one, and says how it went, or how one went before.
    pub fn alone(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = lock(&self.state);
        let result = state.failed.map_or_else(sync, Err);
        state.failed = result.err();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::inbox::Inbox;
    use crate::wait::Sleeper;

    struct Client {
        inbox: Inbox,
        #[expect(dead_code, reason = "held for the inbox")]
        sleeper: Sleeper,
    }

    impl Client {
        fn new() -> Self {
            let sleeper = Sleeper::new().unwrap();
            let inbox = Inbox::new(sleeper.point());
            Self { inbox, sleeper }
        }

        fn waiter(&self, ticket: u64) -> Waiter {
            Waiter {
                ticket: Ticket(ticket),
                to: self.inbox.address(),
            }
        }

        fn told(&mut self) -> Vec<(u64, Result<(), Failure>)> {
            let mut told = Vec::new();
            self.inbox
                .collect(&mut |done| told.push((done.ticket.0, done.result)));
            told
        }
    }

    #[test]
    fn a_failure_is_remembered() {
        let (syncer, mut client) = (Syncer::default(), Client::new());
        assert_eq!(syncer.join(client.waiter(1)), Joined::Leader);
        syncer.lead(|| Ok(()));
        assert_eq!(syncer.join(client.waiter(2)), Joined::Leader);
        syncer.lead(|| Err(Errno::IO));
        assert_eq!(
            client.told(),
            [(1, Ok(())), (2, Err(Failure::Io(Errno::IO)))]
        );
        assert_eq!(syncer.join(client.waiter(3)), Joined::Failed(Errno::IO));
        assert_eq!(client.told(), []);
    }

    #[test]
    fn requests_that_come_during_a_sync_share_the_next_one() {
        let (syncer, mut client) = (Syncer::default(), Client::new());
        assert_eq!(syncer.join(client.waiter(0)), Joined::Leader);
        let mut runs = 0;
        syncer.lead(|| {
            runs += 1;
            if runs == 1 {
                for ticket in 1..9 {
                    assert_eq!(syncer.join(client.waiter(ticket)), Joined::Follower);
                }
                assert!(client.inbox.is_empty(), "this one is too early for them");
            }
            Ok(())
        });
        assert_eq!(runs, 2);
        let all: Vec<_> = (0..9).map(|ticket| (ticket, Ok(()))).collect();
        assert_eq!(client.told(), all);
        assert_eq!(
            syncer.join(client.waiter(9)),
            Joined::Leader,
            "no thread leads any more"
        );
    }

    #[test]
    fn a_request_that_came_during_a_sync_that_failed_hears_of_it() {
        let (syncer, mut client) = (Syncer::default(), Client::new());
        assert_eq!(syncer.join(client.waiter(0)), Joined::Leader);
        let mut runs = 0;
        syncer.lead(|| {
            runs += 1;
            assert_eq!(runs, 1, "the kernel would say that all is well");
            assert_eq!(syncer.join(client.waiter(1)), Joined::Follower);
            Err(Errno::NOSPC)
        });
        let failed = Err(Failure::Io(Errno::NOSPC));
        assert_eq!(client.told(), [(0, failed), (1, failed)]);
    }

    #[test]
    fn all_are_told_once_whichever_thread_leads() {
        const THREADS: u64 = 4;
        const EACH: u64 = 2000;
        let (syncer, mut client) = (Syncer::default(), Client::new());
        let (running, told) = (AtomicU64::new(0), mpsc::channel());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (syncer, running, done) = (&syncer, &running, told.0.clone());
                let to = client.inbox.address();
                scope.spawn(move || {
                    for n in 0..EACH {
                        let ticket = Ticket(thread * EACH + n);
                        let to = to.clone();
                        if syncer.join(Waiter { ticket, to }) == Joined::Leader {
                            syncer.lead(|| {
                                assert_eq!(
                                    running.fetch_add(1, Ordering::SeqCst),
                                    0,
                                    "two at once"
                                );
                                running.fetch_sub(1, Ordering::SeqCst);
                                Ok(())
                            });
                        }
                    }
                    done.send(()).unwrap();
                });
            }
        });
        let mut tickets: Vec<_> = client
            .told()
            .into_iter()
            .map(|(ticket, _)| ticket)
            .collect();
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..THREADS * EACH));
    }
}
