//! The primitives of a shared queue, in one place so that loom's can stand in for them.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};

/// Has loom found a deadlock? It ends its model by a panic then, in which nothing of the model can be locked: what is
/// dropped does nothing for others any more.
pub fn model_has_ended() -> bool {
    cfg!(loom) && std::thread::panicking()
}

/// Locks a mutex of ours, under which nobody panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}

/// Sleeps until `condition` is notified, and takes the lock again.
pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let guard = condition.wait(guard);
    guard.expect("nobody panics while holding it")
}
