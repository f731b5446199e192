//! What a job does.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::pattern::Pattern;

/// How a job waits for its next request to be due, with none in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It polls the clock.
    Poll,
    /// It sleeps, until so long before that time.
    Sleep(Duration),
}

/// What a job does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which requests there are.
    pub pattern: Pattern,
    /// Requests in flight at most.
    pub depth: usize,
    /// Bytes of a request.
    pub bytes: usize,
    /// Where its part of the disk begins.
    pub begin: u64,
    /// For how long requests are started.
    pub runtime: Duration,
    /// Requests a second that are started whatever became of those before (an open loop); else as many as fit.
    pub rate: Option<NonZeroU32>,
    /// How the job waits where there is a rate.
    pub idle: Idle,
    /// Marks the blocks that this run writes, if they are verified.
    pub verify: Option<u64>,
}

impl Plan {
    /// A closed loop from the beginning of the disk, for no time yet.
    pub fn new(pattern: Pattern, depth: usize, bytes: usize) -> Self {
        Self {
            pattern,
            depth,
            bytes,
            begin: 0,
            runtime: Duration::ZERO,
            rate: None,
            idle: Idle::Sleep(Duration::ZERO),
            verify: None,
        }
    }
}
