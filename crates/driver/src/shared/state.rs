//! What all handles of a shared queue have in common.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::counters::Counters;
use crate::device::active_queue::ActiveQueue;
use crate::notify::polling::SharedPolling;
use crate::requests::core::Core;
use crate::shared::owner::SharedEnds;
use crate::shared::switchboard::Switchboard;
use crate::shared::transport::{EpollSleeper, FdTransport};
use crate::shared::used_index::UsedIndex;

/// What all handles of a shared queue have in common.
#[derive(Debug)]
pub struct Shared {
    /// The queue behind its lock.
    pub board: Switchboard<SharedEnds, EpollSleeper, FdTransport>,
    /// For how long blocking waits poll before they sleep.
    pub polling: SharedPolling,
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
        let ends = SharedEnds::new(core, used_index);
        let experiment = &device.options().experiment;
        let mut board = Switchboard::new(
            ends,
            sleeper,
            transport,
            experiment.mixed,
            experiment.kick_lock,
        );
        if experiment.record_lock {
            board.record();
        }
        Ok(Self {
            board,
            polling: SharedPolling::new(),
            started: Instant::now(),
        })
    }

    /// What the queue has counted since the device is there.
    pub fn counters(&self) -> Counters {
        self.board.hear();
        self.board.transport().queue().counts().snapshot()
    }
}
