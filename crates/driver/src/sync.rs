//! The primitives of a shared queue, in one place so that loom's can stand in for them.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Mutex, MutexGuard},
    thread,
};
#[cfg(not(loom))]
pub use std::{
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    sync::{Mutex, MutexGuard},
    thread,
};

/// Locks a mutex of ours, under which nobody panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while holding it")
}
