//! What all handles of a shared queue have in common.

use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Instant;

use crate::counters::Counters;
use crate::device::active_queue::Place;
use crate::notify::polling::Polls;
use crate::requests::core::Core;
use crate::shared::descriptors::{CallSeat, Edge};
use crate::shared::owner::SharedEnds;
use crate::shared::peek::Sight;
use crate::shared::switchboard::Switchboard;
use crate::sync::{Mutex, lock};

/// What all handles of a shared queue have in common.
#[derive(Debug)]
pub struct Shared {
    /// The queue behind its lock.
    pub board: Switchboard<SharedEnds, CallSeat, Edge>,
    /// For how long blocking waits poll before they sleep, as it was learnt, and by which thread.
    polls: Mutex<(Polls, Option<ThreadId>)>,
    /// From when their time counts.
    pub epoch: Instant,
}

impl Shared {
    /// Of the queue at `place`, which has no requests yet.
    pub fn over(place: Place) -> io::Result<Self> {
        let device = Arc::clone(place.device());
        let index = place.index();
        let core = Core::new(Arc::clone(&device), index);
        let sight = Arc::new(Sight::new(&core));
        let edge = Edge::new(place, Arc::clone(&sight))?;
        let seat = CallSeat::new(&edge)?;
        let options = device.options();
        let ends = SharedEnds::new(core, sight);
        let mut board = Switchboard::new(ends, seat, edge, options.mixed, options.kick_lock);
        if options.record_lock {
            board.record();
        }
        let polls = Mutex::new((Polls::new(), None));
        let epoch = Instant::now();
        Ok(Self {
            board,
            polls,
            epoch,
        })
    }

    /// What the queue has counted since the device is there.
    pub fn counters(&self) -> Counters {
        self.board.hear();
        self.board.outside().place().counts().snapshot()
    }

    /// What was learnt of polling so far.
    pub fn polls(&self) -> Polls {
        let (mut polls, by) = lock(&self.polls).clone();
        if by != Some(thread::current().id()) {
            polls.moved();
        }
        polls
    }

    /// What a wait has learnt.
    pub fn learnt(&self, polls: Polls) {
        *lock(&self.polls) = (polls, Some(thread::current().id()));
    }
}
