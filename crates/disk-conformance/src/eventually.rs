//! Waiting for what no event tells of.

use std::time::{Duration, Instant};

/// How long something that must come may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `reached`, looking again and again: for what `/proc` shows there is no event.
///
/// # Panics
///
/// After a minute, with the description.
pub fn eventually(mut reached: impl FnMut() -> bool, description: impl FnOnce() -> String) {
    let start = Instant::now();
    while !reached() {
        let patient = start.elapsed() < PATIENCE;
        assert!(patient, "after a minute still: {}", description());
        std::thread::yield_now();
    }
}
