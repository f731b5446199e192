//! What all handles of a shared queue have in common.

use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use crate::counters::Counters;
use crate::device::active_queue::ActiveQueue;
use crate::notify::polling::Polling;
use crate::requests::core::Core;
use crate::shared::owner::SharedEnds;
use crate::shared::switchboard::Switchboard;
use crate::shared::transport::{EpollSleeper, FdTransport};
use crate::shared::used_index::UsedIndex;
use crate::sync::{Mutex, lock};

/// What all handles of a shared queue have in common.
#[derive(Debug)]
pub struct Shared {
    /// The queue behind its lock.
    pub board: Switchboard<SharedEnds, EpollSleeper, FdTransport>,
    /// For how long blocking waits poll before they sleep, as it was learnt, and by which thread.
    polls: Mutex<(Polling, Option<ThreadId>)>,
    /// From when their time counts.
    pub started: Instant,
}

impl Shared {
    /// Of `queue`, which has no requests yet.
    pub fn over(queue: ActiveQueue) -> io::Result<Self> {
        let device = Arc::clone(queue.device());
        let index = queue.index();
        let core = Core::new(Arc::clone(&device), index);
        let used_index = Arc::new(UsedIndex::new(&core));
        let transport = FdTransport::new(queue, Arc::clone(&used_index))?;
        let sleeper = EpollSleeper::new(&transport)?;
        let options = device.options();
        let ends = SharedEnds::new(core, used_index);
        let mut board =
            Switchboard::new(ends, sleeper, transport, options.mixed, options.kick_lock);
        if options.record_lock {
            board.record();
        }
        let polls = Mutex::new((Polling::new(), None));
        let started = Instant::now();
        Ok(Self {
            board,
            polls,
            started,
        })
    }

    /// What the queue has counted since the device is there.
    pub fn counters(&self) -> Counters {
        self.board.hear();
        self.board.transport().queue().counts().snapshot()
    }

    /// What was learnt of polling so far.
    pub fn polls(&self) -> Polling {
        let (mut polls, by) = lock(&self.polls).clone();
        if by != Some(thread::current().id()) {
            polls.moved();
        }
        polls
    }

    /// What a wait has learnt.
    pub fn learnt(&self, polls: Polling) {
        *lock(&self.polls) = (polls, Some(thread::current().id()));
    }
}
