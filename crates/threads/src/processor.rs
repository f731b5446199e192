use nix::sched::sched_getcpu;
use nix::sys::resource::{UsageWho, getrusage};

/// The processor that this thread runs on, if the kernel tells.
#[must_use]
#[inline]
pub fn processor() -> Option<usize> {
    sched_getcpu().ok()
}

/// How often the kernel has taken the processor from this thread while it wanted to go on. A system call.
#[must_use]
pub fn preemptions() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread may ask for its own usage");
    u64::try_from(usage.involuntary_context_switches()).unwrap_or(0)
}
