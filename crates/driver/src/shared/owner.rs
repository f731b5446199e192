//! What waits for a request on a shared queue, and how it is told.

use std::sync::Arc;

use pollux_disk::inbox::Address;
use pollux_disk::{Completion, Failure, Ticket};
use pollux_ring::{Armed, Notify, RingIndex};

use crate::options::CompletionMode;
use crate::requests::core::Core;
use crate::shared::parts::{Ends, Owner};
use crate::shared::used_index::UsedIndex;
use crate::shared::wakeups::Wakeups;

/// What waits for a request.
#[derive(Debug)]
pub enum Waits {
    /// The holder of its [`Pending`](crate::Pending).
    Handle(Arc<dyn Held>),
    /// A channel.
    Channel(Address, Ticket, CompletionMode),
}

/// A request that a [`Pending`](crate::Pending) holds, with all that was lent with it.
pub trait Held: Send + Sync + std::fmt::Debug {
    /// What it is now, polled or call-driven.
    fn completion(&self) -> CompletionMode;

    /// Under the queue's lock: it has ended. If that is because the device is gone, which may still write to its
    /// memory, that is retired.
    fn end(&self, result: Result<(), Failure>, wakes: &mut Wakeups);
}

impl Owner for Waits {
    fn completion(&self) -> CompletionMode {
        match self {
            Self::Handle(held) => held.completion(),
            Self::Channel(_, _, completion) => *completion,
        }
    }

    fn end(self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        match self {
            Self::Handle(held) => held.end(result, wakes),
            Self::Channel(address, ticket, _) => {
                wakes.deliver(address, Completion { ticket, result });
            }
        }
    }
}

/// The ends of a shared queue.
#[derive(Debug)]
pub struct SharedEnds {
    /// The requests.
    pub core: Core<Waits>,
    used_index: Arc<UsedIndex>,
}

impl SharedEnds {
    /// Those of the queue of `core`, which others see by `used_index`.
    pub fn new(core: Core<Waits>, used_index: Arc<UsedIndex>) -> Self {
        Self { core, used_index }
    }
}

impl Drop for SharedEnds {
    /// Nobody has a handle any more; but what was lent with a request that was dropped is with the core.
    fn drop(&mut self) {
        let mut nobody = Wakeups::default();
        self.core
            .close(&mut |waits, result| waits.end(result, &mut nobody));
    }
}

impl Ends for SharedEnds {
    type Owner = Waits;

    #[inline]
    fn reap(&mut self, done: &mut impl FnMut(Waits, Result<(), Failure>)) -> u16 {
        let before = self.core.epoch();
        let chains = self.core.reap(done);
        if self.core.epoch() != before {
            self.used_index.follow(&self.core);
        }
        chains
    }

    fn publish(&mut self) -> Notify {
        self.core.publish()
    }

    fn has_failed(&self) -> bool {
        self.core.has_failed()
    }

    fn arm(&mut self) -> Armed {
        // A device that is gone wakes all sleepers once, after this poll.
        if self.core.device().is_lost() {
            return Armed::Idle;
        }
        self.core.arm().unwrap_or_else(|fault| {
            self.core.broken(fault);
            Armed::Pending
        })
    }

    fn is_armed(&self) -> bool {
        self.core.is_armed()
    }

    fn disarm(&mut self) {
        self.core.disarm();
    }

    /// Where the device is gone, there is room to be told so.
    fn has_room(&self) -> bool {
        self.core.has_room() || self.is_gone()
    }

    fn is_gone(&self) -> bool {
        self.core.device().is_lost()
    }

    fn next(&self) -> RingIndex {
        self.core.next()
    }
}
