//! The primitives of a shared queue, in one place so that loom's can stand in for them.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(loom)]
pub use once::OnceLock;
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Condvar, Mutex, MutexGuard, OnceLock},
};

#[cfg(loom)]
mod once {
    use super::{AtomicBool, Ordering};

    /// loom has none: a flag of loom's beside the real one, so that a value is seen where loom says so.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            Self {
                is_set: AtomicBool::new(false),
                value: std::sync::OnceLock::new(),
            }
        }

        pub fn get(&self) -> Option<&T> {
            let is_set = self.is_set.load(Ordering::Acquire);
            is_set.then(|| self.value.get()).flatten()
        }

        pub fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }
    }
}

/// Has loom found a deadlock? It ends its model by a panic then, in which nothing of the model can be locked: what is
/// dropped does nothing for others any more.
pub fn model_has_ended() -> bool {
    cfg!(loom) && std::thread::panicking()
}

/// Locks a mutex of ours, under which nothing panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while holding it")
}

/// Sleeps until `condition` is notified, and takes the lock again.
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let guard = condition.wait(guard);
    guard.expect("nothing panics while holding it")
}
