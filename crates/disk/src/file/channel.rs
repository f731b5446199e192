//! One owner's way to a file: at once, through `io_uring`, or by a thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pollux_memory::Spans;
use pollux_memory::io::Flow;
use pollux_memory::uring::Transfer;

use super::counts::Counts;
use super::job::Job;
use super::ready::{AtOnce, Burst, Company};
use super::shared::Shared;
use super::sync::{Joined, Settle, Waiter};
use super::transfers::{Pending, Transfers, verb};
use crate::inbox::Inbox;
use crate::wait::Watch;
use crate::{Armed, Channel, Completion, Failure, Op, Queued, Request, Ticket, WaitPoint};

pub struct FileChannel {
    shared: Arc<Shared>,
    /// Without it, all transfers go to the threads.
    transfers: Option<Transfers>,
    burst: Burst,
    outside: Outside,
    counts: Counts,
    in_flight: usize,
}

/// What ends elsewhere and is delivered.
struct Outside {
    inbox: Inbox,
    /// What the next submit hands to the threads.
    staged: Vec<Job>,
}

impl Outside {
    /// Lets `ticket` end once what was done before is stable.
    fn settle(&mut self, shared: &Shared, ticket: Ticket) -> Queued {
        let to = self.inbox.address();
        match shared.backing.sync.join(Waiter { ticket, to }) {
            Joined::Leader => {
                self.staged.push(Job::Sync);
                Queued::Pending
            }
            Joined::Follower => Queued::Pending,
            Joined::Failed(error) => Queued::Done(Err(Failure::Io(error))),
        }
    }

    /// What becomes of a request that is done.
    fn finish(&mut self, shared: &Shared, ticket: Ticket, settle: Settle) -> Queued {
        match settle {
            Settle::Done => Queued::Done(Ok(())),
            Settle::Synced => self.settle(shared, ticket),
        }
    }
}

impl FileChannel {
    pub fn new(shared: Arc<Shared>, wait: &WaitPoint) -> io::Result<Self> {
        shared.pool.ensure_thread()?;
        let transfers = shared.new_transfers()?;
        if let Some(transfers) = &transfers {
            wait.watch(transfers.as_fd(), Watch::CHANNEL)?;
        }
        Ok(Self {
            shared,
            transfers,
            burst: Burst::default(),
            outside: Outside {
                inbox: Inbox::new(wait),
                staged: Vec::new(),
            },
            counts: Counts::default(),
            in_flight: 0,
        })
    }

    #[inline]
    fn transfer(&mut self, request: Request, flow: Flow, at: u64, spans: Spans) -> Queued {
        let backing = &self.shared.backing;
        let mut transfer = Transfer {
            flow,
            spans,
            skip: 0,
            at,
            buffer: None,
        };
        let company = match self.transfers {
            Some(_) => self.burst.another(),
            None => Company::Few,
        };
        match backing.at_once(&transfer, company) {
            AtOnce::All(Ok(())) => {
                self.counts.inline += 1;
                let settle = backing.settles(&request.op);
                return self.outside.finish(&self.shared, request.ticket, settle);
            }
            AtOnce::All(error) => {
                return Queued::Done(backing.told(verb(flow), at, spans.bytes(), error));
            }
            AtOnce::Part(moved) => {
                transfer.skip = moved;
                transfer.at += moved;
            }
        }
        if !backing.takes(&spans) {
            self.counts.bounced += 1;
        } else if let Some(transfers) = &mut self.transfers {
            let pending = Pending {
                ticket: request.ticket,
                transfer,
                settle: backing.settles(&request.op),
            };
            transfers.queue(pending, &mut self.counts);
            return Queued::Pending;
        }
        self.hand_out(request)
    }

    fn hand_out(&mut self, request: Request) -> Queued {
        self.counts.pooled += 1;
        let to = self.outside.inbox.address();
        self.outside.staged.push(Job::Run(request, to));
        Queued::Pending
    }
}

// SAFETY: a transfer is told as ended when the kernel has ended it (`Ring::collect`) or the call that moved it has
// returned; what a thread does, once it is done (`Job::run`).
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for FileChannel {
    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        if let Err(failure) = self.shared.backing.geometry().check(&request.op) {
            return Queued::Done(Err(failure));
        }
        let queued = match request.op {
            Op::Read { into: spans, .. } | Op::Write { from: spans, .. } if spans.bytes() == 0 => {
                Queued::Done(Ok(()))
            }
            Op::Read { at, into } => self.transfer(request, Flow::FromFile, at, into),
            Op::Write { at, from, .. } if self.shared.backing.guards(at, from.bytes()) => {
                self.hand_out(request)
            }
            Op::Write { at, from, .. } => self.transfer(request, Flow::ToFile, at, from),
            Op::Flush => {
                let settle = self.shared.backing.settles(&request.op);
                self.outside.finish(&self.shared, request.ticket, settle)
            }
            Op::Discard { .. } | Op::WriteZeroes { .. } => self.hand_out(request),
        };
        if queued == Queued::Pending {
            self.in_flight += 1;
        }
        queued
    }

    fn submit(&mut self) {
        self.burst.end();
        if !self.outside.staged.is_empty() {
            self.shared.pool.submit(&mut self.outside.staged);
        }
        if let Some(transfers) = &mut self.transfers {
            if let Err(error) = transfers.submit() {
                // It is still there, and an owner that arms is told `Pending`: it is tried again.
                tracing::debug!(%error, "the kernel takes no transfers for now");
            }
            self.counts.entered += transfers.entered();
        }
        self.shared.totals.add(&mut self.counts);
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let (shared, outside) = (&self.shared, &mut self.outside);
        let mut ended = 0;
        if let Some(transfers) = &mut self.transfers {
            transfers.reap(|pending, result| {
                let ticket = pending.ticket;
                let doing = verb(pending.transfer.flow);
                let told = shared
                    .backing
                    .told(doing, pending.start(), pending.bytes(), result);
                let queued = match told {
                    Ok(()) => outside.finish(shared, ticket, pending.settle),
                    failed => Queued::Done(failed),
                };
                if let Queued::Done(result) = queued {
                    ended += 1;
                    done(Completion { ticket, result });
                }
            });
            self.counts.entered += transfers.entered();
        }
        ended += outside.inbox.collect(done);
        self.in_flight -= ended;
    }

    fn arm(&mut self) -> Armed {
        debug_assert!(self.outside.staged.is_empty(), "submit comes before arm");
        let busy = self.transfers.as_mut().is_some_and(Transfers::is_busy);
        if busy || !self.outside.inbox.is_empty() {
            Armed::Pending
        } else {
            Armed::Idle
        }
    }
}

/// Nothing may be in flight: see [`Channel`]. Where something is, its memory is in use, so that this
/// waits for it rather than to let it be unmapped under the kernel's hands.
impl Drop for FileChannel {
    fn drop(&mut self) {
        let left = self.in_flight;
        while self.in_flight > 0 {
            self.submit();
            self.reap(&mut |_| ());
            thread::sleep(Duration::from_millis(1));
        }
        self.shared.totals.add(&mut self.counts);
        debug_assert!(
            left == 0 || thread::panicking(),
            "a channel was dropped with {left} requests in flight"
        );
    }
}
