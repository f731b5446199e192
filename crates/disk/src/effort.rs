//! What requests cost the thread that queues them.

/// How much of a request's work is done by the thread that queues, submits and reaps it, and so is lost to its other
/// queues. From least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// The same for each, however large.
    Nothing,
    /// Large ones take longer to hand over, which is less than to copy them.
    HandOver,
    /// Reads may be copied, from a cache; writes and ranges are handed over.
    Cached,
    /// The data of transfers is copied; ranges are handed over.
    Copy,
    /// All of it.
    Everything,
}
