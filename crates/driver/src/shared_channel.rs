//! A channel into a queue that others use too.

use std::io;
use std::sync::Arc;

use pollux_disk::inbox::{Address, Inbox};
use pollux_disk::{Armed, Completion as Done, Queued, Request, WaitPoint};

use crate::channel::Hybrid;
use crate::core::Ask;
use crate::counters::Counters;
use crate::options::Completion;
use crate::owner::Waits;
use crate::queue::Shared;
use crate::shared::Outside;

/// One owner's way into a shared [`Queue`](crate::Queue).
///
/// Requests are staged when they are submitted, all under one taking of the lock, and kick the device
/// after it. Its counters are those of the whole queue.
#[derive(Debug)]
pub struct SharedChannel {
    shared: Arc<Shared>,
    inbox: Inbox,
    address: Address,
    wait: WaitPoint,
    /// What was queued and not submitted.
    queued: Vec<(Request, Completion)>,
    /// Its owner has armed and may be asleep.
    asleep: bool,
    before: Counters,
}

impl SharedChannel {
    pub(crate) fn new(shared: Arc<Shared>, wait: &WaitPoint) -> io::Result<Self> {
        shared.board.outside().watched_by(wait)?;
        let inbox = Inbox::new(wait);
        Ok(Self {
            before: shared.board.outside().place().counters(),
            shared,
            address: inbox.address(),
            inbox,
            wait: wait.clone(),
            queued: Vec::new(),
            asleep: false,
        })
    }
}

impl Hybrid for SharedChannel {
    fn queue_as(&mut self, request: Request, completion: Completion) -> Queued {
        self.queued.push((request, completion));
        Queued::Pending
    }

    fn counters(&mut self) -> Counters {
        let counters = self.shared.board.outside().place().counters();
        self.shared.board.woken();
        counters.since(self.before)
    }
}

impl pollux_disk::Channel for SharedChannel {
    fn queue(&mut self, request: Request) -> Queued {
        self.queue_as(request, Completion::Polled)
    }

    fn submit(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        let (queued, address) = (&mut self.queued, &self.address);
        let mut ended = Vec::new();
        self.shared.board.submit_all(|ends, switch| {
            for (request, completion) in queued.drain(..) {
                let Request { ticket, op } = request;
                let owner = Waits::Channel(address.clone(), ticket, completion);
                match ends.core.accept(Ask::Op(op), owner) {
                    Ok(()) => switch.begin(completion),
                    Err((_, result)) => ended.push(Done { ticket, result }),
                }
            }
        });
        for done in ended {
            self.address.deliver(done);
        }
    }

    fn reap(&mut self, done: &mut dyn FnMut(Done)) {
        if std::mem::take(&mut self.asleep) {
            let woken = |_: &mut _, switch: &mut crate::switch::Switch| switch.wake();
            self.shared.board.attend(woken);
        } else {
            self.shared.board.poll();
        }
        self.inbox.collect(done);
    }

    fn arm(&mut self) -> Armed {
        if !self.queued.is_empty() {
            return Armed::Pending;
        }
        if !std::mem::replace(&mut self.asleep, true) {
            let sleeps = |_: &mut _, switch: &mut crate::switch::Switch| switch.sleep();
            self.shared.board.attend(sleeps);
        } else {
            self.shared.board.woken();
        }
        if self.inbox.is_empty() {
            self.shared.board.outside().slept();
            Armed::Idle
        } else {
            Armed::Pending
        }
    }
}

impl Drop for SharedChannel {
    fn drop(&mut self) {
        if self.asleep {
            let woken = |_: &mut _, switch: &mut crate::switch::Switch| switch.wake();
            self.shared.board.attend(woken);
        }
        self.shared.board.outside().unwatched_by(&self.wait);
    }
}
