//! Channels on which a request says how its end is to be noticed: of one owner, or into a shared queue.

use pollux_disk::{Queued, Request};

use crate::counters::Counters;
use crate::options::CompletionMode;

/// A channel on which each request says how its end is to be noticed.
///
/// # Safety
///
/// As for [`Channel`](pollux_disk::Channel), for requests that come this way.
pub unsafe trait Hybrid: pollux_disk::Channel {
    /// [`queue`](pollux_disk::Channel::queue), with a say.
    fn queue_as(&mut self, request: Request, completion: CompletionMode) -> Queued;

    /// What was counted since it was opened: by all of the queue, if others use that, too.
    fn counters(&mut self) -> Counters;
}
