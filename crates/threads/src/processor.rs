use std::time::Duration;

use nix::sched::sched_getcpu;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The processor that this thread runs on, if the kernel tells.
#[must_use]
#[inline]
pub fn processor() -> Option<usize> {
    sched_getcpu().ok()
}

/// What a thread has had of its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// How long it ran. While it is alone there, the kernel may be late with it by one of its ticks.
    pub ran: Duration,
    /// How often the kernel has taken the processor from it while it wanted to go on.
    pub preemptions: u64,
}

impl Usage {
    /// Of a thread that has not run yet.
    pub const NONE: Self = Self {
        ran: Duration::ZERO,
        preemptions: 0,
    };
}

/// What this thread has had. A system call.
#[must_use]
pub fn usage() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else {
        // The sandbox of another program forbids it: other threads are not known of.
        return Usage::NONE;
    };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Usage {
        ran: Duration::from_micros(u64::try_from(micros).unwrap_or(0)),
        preemptions: u64::try_from(usage.involuntary_context_switches()).unwrap_or(0),
    }
}
