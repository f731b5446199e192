//! How jobs are told to end early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pollux::disk::WaitPoint;

/// Tells all jobs to end.
#[derive(Debug, Default)]
pub struct Stop {
    /// Looked at before every request: told, a job starts no more.
    pub asked: AtomicBool,
    sleepers: Mutex<Vec<WaitPoint>>,
}

impl Stop {
    /// Wakes `point`, too, when it is time.
    pub fn wakes(&self, point: &WaitPoint) {
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
