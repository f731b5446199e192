//! What is noted of each request while a client asks for it: how long it took, and what it was.
//!
//! A request's time begins when its chain is found in the available ring, and ends when its driver is shown that it has
//! ended. The clock is read once for all chains of a turn, and once for all that is shown together. So how long a chain
//! was in the ring before the worker polled it is not known, and of a batch, each waits for those before it.
//!
//! It is switched on and off while queues run, and each of them learns of it with its next chains. Off, it costs a load
//! for each turn that finds any and a comparison for each request.

mod ended;
mod observer;
mod trace;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_stats::{Kind, Latencies, Times};
use pollux_threads::lock;

pub use ended::{Ended, Extent};
pub use observer::Observer;
pub use trace::{Trace, Traced};

/// What is to be noted of a disk.
#[derive(Debug)]
pub struct Observation {
    began: Instant,
    /// Moves on with each change.
    generation: AtomicU32,
    queues: u16,
    wanted: Mutex<Wanted>,
    /// Traces that were thrown away, while queues may hold them: a worker that let go of the last of one would give
    /// back megabytes of memory in the middle of its turn.
    thrown_away: Mutex<Vec<Arc<Trace>>>,
}

/// What is to be noted.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Times, by queue.
    latencies: Option<Arc<[Latencies]>>,
    trace: Option<Arc<Trace>>,
}

impl Observation {
    /// Nothing, of so many queues.
    pub(crate) fn of(queues: u16) -> Self {
        Self {
            began: Instant::now(),
            generation: AtomicU32::new(0),
            queues,
            wanted: Mutex::default(),
            thrown_away: Mutex::default(),
        }
    }

    /// Counts the times of requests from now on, from zero, or does not. As it was, it goes on.
    pub fn set_latencies(&self, wanted: bool) {
        let mut current = lock(&self.wanted);
        if current.latencies.is_some() != wanted {
            current.latencies =
                wanted.then(|| (0..self.queues).map(|_| Latencies::default()).collect());
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Are the times of requests counted?
    #[must_use]
    pub fn is_timed(&self) -> bool {
        lock(&self.wanted).latencies.is_some()
    }

    /// The times of requests of all queues, by kind. `None`: they are not counted.
    #[must_use]
    pub fn latencies(&self) -> Option<Vec<(Kind, Times)>> {
        let latencies = lock(&self.wanted).latencies.clone()?;
        let of = |kind| {
            let mut sum = Times::default();
            for queue in &*latencies {
                sum.add(&queue.times(kind));
            }
            (kind, sum)
        };
        Some(Kind::ALL.map(of).into())
    }

    /// Traces requests from now on for a time, the last `records` of them. An earlier trace is thrown away.
    #[must_use]
    pub fn start_trace(&self, time: Duration, records: usize) -> Arc<Trace> {
        let trace = Arc::new(Trace::new(self.began, time, records));
        self.set_trace(Some(Arc::clone(&trace)));
        trace
    }

    /// The trace that was started last, whether it has ended or not.
    #[must_use]
    pub fn trace(&self) -> Option<Arc<Trace>> {
        self.forget(None);
        lock(&self.wanted).trace.clone()
    }

    /// Ends the trace and throws it away. Its memory is given back at once, or, as a queue holds it until its next
    /// request, when a trace is asked for after that.
    pub fn drop_trace(&self) {
        self.set_trace(None);
    }

    fn set_trace(&self, trace: Option<Arc<Trace>>) {
        let last = std::mem::replace(&mut lock(&self.wanted).trace, trace);
        self.generation.fetch_add(1, Ordering::Release);
        self.forget(last);
    }

    /// Gives back what no queue holds.
    fn forget(&self, trace: Option<Arc<Trace>>) {
        let mut thrown_away = lock(&self.thrown_away);
        thrown_away.extend(trace);
        thrown_away.retain(|trace| Arc::strong_count(trace) > 1);
    }
}

#[cfg(test)]
mod tests;
