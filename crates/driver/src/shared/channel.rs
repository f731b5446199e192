//! A channel into a queue that others use too.

use std::sync::Arc;

use pollux_disk::inbox::{Address, Inbox};
use pollux_disk::{Armed, Completion, Queued, Request, WaitPoint};

use crate::counters::Counters;
use crate::options::CompletionMode;
use crate::requests::command::Command;
use crate::requests::hybrid::Hybrid;
use crate::shared::listeners::Listener;
use crate::shared::owner::Waits;
use crate::shared::parts::Transport;
use crate::shared::state::Shared;

/// One owner's way into a shared [`Queue`](crate::Queue).
///
/// Requests are staged when they are submitted, all under one taking of the lock, and kick the device
/// after it. Its counters are those of the whole queue.
#[derive(Debug)]
pub struct SharedChannel {
    shared: Arc<Shared>,
    inbox: Inbox,
    address: Address,
    listener: Listener<WaitPoint>,
    /// What was queued and not submitted.
    queued: Vec<(Request, CompletionMode)>,
    /// How many were submitted and not reaped.
    in_flight: usize,
    /// Its owner has armed over them and may be asleep.
    asleep: bool,
    before: Counters,
}

impl SharedChannel {
    pub(crate) fn new(shared: Arc<Shared>, wait: &WaitPoint) -> Self {
        let inbox = Inbox::new(wait);
        Self {
            listener: shared.board.listener(wait),
            before: shared.counters(),
            shared,
            address: inbox.address(),
            inbox,
            queued: Vec::new(),
            in_flight: 0,
            asleep: false,
        }
    }

    /// Its owner sleeps no more: another is to be called.
    fn wake(&mut self) {
        self.shared.board.wakes(&self.listener);
        self.asleep = false;
    }
}

// SAFETY: as for `pollux_disk::Channel`.
unsafe impl Hybrid for SharedChannel {
    fn queue_as(&mut self, request: Request, completion: CompletionMode) -> Queued {
        self.queued.push((request, completion));
        Queued::Pending
    }

    fn counters(&mut self) -> Counters {
        self.shared.counters().since(self.before)
    }
}

// SAFETY: as for a `Channel` of the driver's: the completion is delivered to the inbox when the core has ended the
// request.
unsafe impl pollux_disk::Channel for SharedChannel {
    fn queue(&mut self, request: Request) -> Queued {
        self.queue_as(request, CompletionMode::Polled)
    }

    fn submit(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        self.in_flight += self.queued.len();
        let (queued, address) = (&mut self.queued, &self.address);
        let mut ended = Vec::new();
        self.shared.board.submit_all(|ends, policy| {
            for (request, completion) in queued.drain(..) {
                let Request { ticket, op } = request;
                let owner = Waits::Channel(address.clone(), ticket, completion);
                match ends.core.accept(Command::Op(op), owner) {
                    Ok(()) => policy.begin(completion),
                    Err((_, result)) => ended.push(Completion { ticket, result }),
                }
            }
        });
        for done in ended {
            self.address.deliver(done);
        }
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        if self.asleep {
            self.wake();
        } else {
            self.shared.board.poll();
        }
        self.in_flight -= self.inbox.collect(done);
    }

    fn arm(&mut self) -> Armed {
        if !self.queued.is_empty() {
            return Armed::Pending;
        }
        if self.in_flight == 0 {
            // Nothing can end here: an owner that sleeps over that needs no calls, nor is it the one to be called
            // about requests of others.
            return Armed::Idle;
        }
        if self.asleep {
            self.shared.board.woken();
        } else {
            if self.shared.board.sleeps(&self.listener).is_err() {
                return Armed::CannotSleep;
            }
            self.asleep = true;
        }
        if self.inbox.is_empty() {
            self.shared.board.transport().slept();
            Armed::Idle
        } else {
            Armed::Pending
        }
    }

    fn replacements(&self) -> Option<u64> {
        let device = self.shared.board.transport().queue().device();
        Some(device.replacements())
    }
}

impl Drop for SharedChannel {
    fn drop(&mut self) {
        if self.asleep {
            self.wake();
        }
        self.shared.board.leaves(&self.listener);
    }
}
