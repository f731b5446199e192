//! What a session asks of a worker, and how the two name what they speak of.

use std::sync::Arc;

use crossbeam_channel::Sender;
use pollux_disk::Channel;
use pollux_disk::wait::Watch;
use pollux_memory::Memory;

use crate::notify::Call;
use crate::queue::{Dirty, Queue};

/// Names a session on one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub u32);

/// What a driver is told, and through what. `None`: it is not told.
pub enum Notifier {
    /// That requests have ended.
    Call(Option<Call>),
    /// That its ring is broken.
    Error(Option<Call>),
}

/// What a session asks of a worker.
pub enum Command {
    /// Queues of this session follow; their requests go through this channel.
    Open {
        session: SessionId,
        channel: Box<dyn Channel>,
    },
    /// Run this queue: poll it without waiting for a kick.
    Start {
        session: SessionId,
        queue: Box<Queue>,
    },
    /// Take nothing more from queue `index`, and answer with the next available index once all that
    /// was taken has ended.
    Stop {
        session: SessionId,
        index: u16,
        stopped: Sender<u16>,
    },
    /// Tell the driver of queue `index` through this from now on. Answered once the old one is used no more.
    SetNotifier {
        session: SessionId,
        index: u16,
        notifier: Notifier,
        done: Sender<()>,
    },
    /// Memory was added. Answered once no queue resolves by the old table any more.
    SetMemory {
        session: SessionId,
        memory: Arc<Memory>,
        done: Sender<()>,
    },
    /// Log what queue `index` writes there from now on. Answered once it logs nowhere else. What is in flight is logged as
    /// it ends.
    SetDirty {
        session: SessionId,
        index: u16,
        dirty: Option<Dirty>,
        done: Sender<()>,
    },
    /// A kick of this session's may have been read that was not only for the queue that has stopped: poll all.
    PollAll { session: SessionId },
    /// All queues of this session have stopped: give back its channel. To drop it may take long, where another server
    /// is asked for an answer.
    Close {
        session: SessionId,
        closed: Sender<Box<dyn Channel>>,
    },
    /// End the thread.
    End,
}

/// What the kicks of queue `index` are called at its worker's wait point.
pub fn watch_of(session: SessionId, index: u16) -> Watch {
    Watch(u64::from(session.0) << 16 | u64::from(index))
}
