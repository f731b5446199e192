//! How jobs are told to end early, and how far they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pollux_disk::WaitPoint;

/// Tells all jobs to end.
#[derive(Debug, Default)]
pub struct Stop {
    /// Loaded before every request: told, a job starts no more.
    pub(crate) asked: AtomicBool,
    sleepers: Mutex<Vec<WaitPoint>>,
}

impl Stop {
    /// Wakes `point`, too, when it is time.
    pub(crate) fn wakes(&self, point: &WaitPoint) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.push(point.clone());
    }

    /// Have they been told?
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// No more requests are started; those in flight end as they will.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        for point in &*sleepers {
            point.wake();
        }
    }
}

/// How many requests of a job have ended: on a cache line of its own, as the job writes it all the time.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Live(pub(crate) AtomicU64);

impl Live {
    /// How many there are by now.
    pub fn ended(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
