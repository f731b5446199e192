//! Gets a thread out of a descriptor of a frontend's that holds it.
//!
//! Descriptors for kicks and calls are made non-blocking when they arrive. But the flag belongs to the
//! open file, and so to the frontend as much as to us, and an eventfd cannot be opened anew: a
//! frontend that fills its eventfd and clears the flag again can have a write wait for ever, at any
//! moment after any check. No flag of a single write helps (`RWF_NOWAIT` is refused for eventfds),
//! and to have the kernel signal it through an `io_uring` costs as much again as the write.
//!
//! So a thread that uses such a descriptor says so, by a counter of its thread that is odd meanwhile ([`watched`]),
//! and the watchdog reads the counters every [`TICK`] and interrupts the threads that it finds inside. A system call
//! that does not wait takes no notice; one that does ends with `EINTR`, and nothing else makes it end
//! so: an `EINTR` proves what the frontend did. To hold the thread often, and for less than a tick each
//! time, does not help a frontend: the longer all of it takes, the surer it is found.
//!
//! While there are no calls, nothing ticks. The watchdog rests as all threads here do: it arms, reads once more,
//! and sleeps until a caller finds it resting.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use pollux_memory::Interruptible;
use pollux_threads::{Kind, lock, spawn};

/// How often it reads the counters, and so for how long a thread can be held; after twice as long nothing of it moves
/// any more.
const TICK: Duration = Duration::from_millis(4);

/// A thread that uses descriptors of frontends.
struct Watched {
    /// Odd while it uses one.
    uses: AtomicU64,
    thread: Interruptible,
}

/// All of them, and what the watchdog saw of each last.
static WATCHED: Mutex<Vec<(Arc<Watched>, u64)>> = Mutex::new(Vec::new());

/// Is the watchdog asleep, or about to?
static RESTING: AtomicBool = AtomicBool::new(false);

static KEEPER: OnceLock<Thread> = OnceLock::new();

fn all() -> MutexGuard<'static, Vec<(Arc<Watched>, u64)>> {
    lock(&WATCHED)
}

/// A thread's entry in the list, until the thread ends.
struct Entry {
    own: Arc<Watched>,
    /// What `uses` is, without an atomic operation.
    uses: Cell<u64>,
}

impl Entry {
    fn new() -> Self {
        let own = Arc::new(Watched {
            uses: AtomicU64::new(0),
            thread: Interruptible::current(),
        });
        all().push((Arc::clone(&own), 0));
        Self {
            own,
            uses: Cell::new(0),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        all().retain(|(watched, _)| !Arc::ptr_eq(watched, &self.own));
    }
}

thread_local! {
    static ENTRY: Entry = Entry::new();
}

/// Starts the watchdog, once for the whole process, before the first use of [`watched`].
pub fn start() -> io::Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _alone = lock(&STARTING);
    if KEEPER.get().is_none() {
        let keeper = spawn(Kind::Watchdog, "watchdog", keep)?;
        KEEPER
            .set(keeper.thread().clone())
            .expect("nothing else starts it");
    }
    Ok(())
}

/// Runs `system_call`, which uses a descriptor of a frontend's, and has it end with `EINTR` if it waits.
#[inline]
pub fn watched<T>(system_call: impl FnOnce() -> T) -> T {
    ENTRY.with(|entry| {
        let uses = entry.uses.get();
        // A full fence, which pairs with the one in `keep`: it says that it rests, then reads the counters;
        // we change ours, then read whether it rests. One of us sees the other.
        entry.own.uses.swap(uses + 1, Ordering::SeqCst);
        if RESTING.load(Ordering::SeqCst) {
            rouse();
        }
        let ended = system_call();
        entry.own.uses.store(uses + 2, Ordering::Release);
        entry.uses.set(uses + 2);
        ended
    })
}

#[cold]
fn rouse() {
    if RESTING.swap(false, Ordering::SeqCst)
        && let Some(keeper) = KEEPER.get()
    {
        keeper.unpark();
    }
}

fn keep() {
    loop {
        if look() {
            thread::park_timeout(TICK);
            continue;
        }
        RESTING.swap(true, Ordering::SeqCst);
        if !look() {
            // Woken for no reason, it reads the counters once too often.
            thread::park();
        }
        RESTING.store(false, Ordering::SeqCst);
    }
}

/// Interrupts every thread that is using a descriptor. Was one used since the last tick, or is one now?
fn look() -> bool {
    let mut busy = false;
    for (watched, seen) in all().iter_mut() {
        let uses = watched.uses.load(Ordering::SeqCst);
        let inside = !uses.is_multiple_of(2);
        if inside {
            watched.thread.interrupt();
        }
        busy |= inside || uses != *seen;
        *seen = uses;
    }
    busy
}

#[cfg(test)]
mod tests;
