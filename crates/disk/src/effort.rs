//! What requests cost the thread that queues them.

/// How much of a request's work is done by the thread that queues, submits and reaps it, and so is lost to its other
/// queues. From least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// The same for each, however large.
    Nothing,
    /// Large ones take longer to hand over, which is less than to copy them.
    HandOver,
    /// The kernel works for reads on this thread: it copies them from its cache, or marks each of their pages. Writes
    /// and ranges are handed over.
    Kernel,
    /// The data of transfers is copied; ranges are handed over.
    Copy,
    /// All of it.
    Everything,
}
