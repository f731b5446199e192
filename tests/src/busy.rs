//! Something that goes on in another thread while a test does its work.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `busy` again and again on a thread of its own until `meanwhile` has ended, by returning or
/// by a panic. Returns how often `busy` ran to its end, and what `meanwhile` returned.
///
/// # Panics
/// If `busy` panics.
pub fn while_busy<T>(mut busy: impl FnMut() + Send, meanwhile: impl FnOnce() -> T) -> (u64, T) {
    let over = AtomicBool::new(false);
    // A short `meanwhile` would be over before the thread has begun.
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            begun.wait();
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                busy();
                rounds += 1;
            }
            rounds
        });
        let ending = SetOnDrop(&over);
        begun.wait();
        let outcome = meanwhile();
        drop(ending);
        let rounds = thread.join().expect("its message is above");
        (rounds, outcome)
    })
}

/// Sets the flag when it is dropped, which a panic does as well: what goes on until then ends.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
