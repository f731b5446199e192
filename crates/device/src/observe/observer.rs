//! How a queue notes its requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_threads::lock;

use super::ended::{Ended, now_ns};
use super::{Observation, Wanted};

/// What is noted of one queue. It neither allocates nor blocks while requests are noted.
#[derive(Debug)]
pub struct Observer {
    observation: Arc<Observation>,
    queue: u16,
    generation: u32,
    wanted: Wanted,
    /// When the chains of this turn were found; 0: nothing is noted.
    found_ns: u64,
    /// What has ended and was not shown. It does not grow: there is a place for each request of the ring.
    ended: Vec<Ended>,
}

impl Observer {
    /// Of a queue with so many slots.
    pub fn new(observation: Arc<Observation>, queue: u16, slots: u16) -> Self {
        Self {
            observation,
            queue,
            generation: 0,
            wanted: Wanted::default(),
            found_ns: 0,
            ended: Vec::with_capacity(slots.into()),
        }
    }

    /// Chains were found.
    #[inline]
    pub fn found(&mut self) {
        let generation = self.observation.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.reload();
        }
        if self.wanted.latencies.is_some() || self.wanted.trace.is_some() {
            self.read_clock();
        }
    }

    /// When a request that begins now was found. 0: nothing is noted.
    #[inline]
    pub fn found_ns(&self) -> u64 {
        self.found_ns
    }

    #[cold]
    fn reload(&mut self) {
        let wanted = lock(&self.observation.wanted);
        // Under the lock: the generation of what is wanted.
        self.generation = self.observation.generation.load(Ordering::Relaxed);
        self.wanted.clone_from(&wanted);
        drop(wanted);
        self.found_ns = 0;
    }

    fn read_clock(&mut self) {
        let now = now_ns(self.observation.began);
        let trace = self.wanted.trace.as_ref();
        if trace.is_some_and(|trace| trace.is_over_at(now)) {
            self.wanted.trace = None;
        }
        let is_on = self.wanted.latencies.is_some() || self.wanted.trace.is_some();
        self.found_ns = if is_on { now } else { 0 };
    }

    /// A request that is noted has ended, and is shown later.
    #[cold]
    pub fn ended(&mut self, ended: Ended) {
        if self.ended.len() < self.ended.capacity() {
            self.ended.push(ended);
        }
    }

    /// All that has ended is shown to the driver now.
    #[inline]
    pub fn shown(&mut self) {
        if !self.ended.is_empty() {
            self.note();
        }
    }

    #[cold]
    fn note(&mut self) {
        let now = now_ns(self.observation.began);
        let latencies = self.wanted.latencies.as_ref();
        let latencies = latencies.and_then(|queues| queues.get(usize::from(self.queue)));
        for ended in self.ended.drain(..) {
            let took = now.saturating_sub(ended.found_ns);
            if let Some(latencies) = latencies {
                latencies.record(ended.kind, took);
            }
            if let Some(trace) = &self.wanted.trace {
                trace.note(self.queue, &ended, took);
            }
        }
    }
}
