//! A thread bound to one processor for a while.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread to a processor until it is dropped.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Binds the calling thread to `cpu`.
    pub fn to(cpu: usize) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("could not use processor {cpu}: {error}"),
            )
        })?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}
