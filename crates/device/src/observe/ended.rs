//! A request that has ended, and the clock by which it is noted.

use std::time::Instant;

use pollux_stats::{Kind, Outcome};

/// Which bytes of the disk a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub at: u64,
    /// How many; 0 where it is about none.
    pub bytes: u64,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub found_ns: u64,
    pub kind: Kind,
    pub outcome: Outcome,
    pub extent: Extent,
}

/// Nanoseconds since `began`, which was not just now.
pub fn now_ns(began: Instant) -> u64 {
    let passed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    passed.max(1)
}
