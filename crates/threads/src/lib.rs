//! What kinds of threads there are, and the listener that is told when one is born.
//!
//! A sandbox allows each kind what that kind needs. It belongs to the program, but most threads are
//! started by libraries, which must not depend on it: so the code that starts a thread says what kind it is,
//! and the thread, before it does anything else, tells the listener that asked to be [told](tell).
//!
//! ```
//! use pollux_threads::{Kind, kind, spawn};
//!
//! let thread = spawn(Kind::Pool, "pool", kind)?;
//! assert_eq!(thread.join().unwrap(), Kind::Pool);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod ending;
mod processor;

use std::cell::Cell;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

pub use ending::{is_ending, once_let_go};
pub use processor::{Usage, processor, usage};

/// What a thread is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The one that the process began with, and any without a name.
    Main,
    /// Waits for signals to the process.
    Signals,
    /// Talks with one frontend.
    Session,
    /// Serves queues.
    Worker,
    /// Does for a disk what would block.
    Pool,
    /// Watches the connection of a driver.
    DriverControl,
    /// Ends a driver's question that is not answered.
    DriverPatience,
    /// Answers on the control socket.
    Control,
    /// Makes a disk larger.
    Resizer,
    /// Talks with a cluster for a disk, by a library that starts threads of its own.
    Cluster,
    /// Opens disks that are added while the process runs.
    Opener,
    /// Keeps the list of them in a file.
    Keeper,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Main,
        Self::Signals,
        Self::Session,
        Self::Worker,
        Self::Pool,
        Self::DriverControl,
        Self::DriverPatience,
        Self::Control,
        Self::Resizer,
        Self::Cluster,
        Self::Opener,
        Self::Keeper,
    ];

    /// What people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Signals => "signals",
            Self::Session => "session",
            Self::Worker => "worker",
            Self::Pool => "pool",
            Self::DriverControl => "driver-control",
            Self::DriverPatience => "driver-patience",
            Self::Control => "control",
            Self::Resizer => "resizer",
            Self::Cluster => "cluster",
            Self::Opener => "opener",
            Self::Keeper => "keeper",
        }
    }
}

thread_local! {
    // `const` and without a destructor: it may be read in a signal handler.
    static KIND: Cell<Kind> = const { Cell::new(Kind::Main) };
}

/// Told by a new thread what its parent is, and what it is itself.
type Told = Box<dyn Fn(Kind, Kind) + Send + Sync>;

static TOLD: OnceLock<Told> = OnceLock::new();

/// Has `told` called by each thread that is born from now on, with its parent's kind and its own. What the kernel
/// remembers of a thread it hands down, so a thread does not call it when its parent is of its own kind.
///
/// # Panics
///
/// When there is a listener already.
pub fn tell(told: impl Fn(Kind, Kind) + Send + Sync + 'static) {
    let first = TOLD.set(Box::new(told)).is_ok();
    assert!(first, "one is told of threads, once for a process");
}

/// Locks `mutex`, also after a thread has panicked with it: what it guards is whole between any two of its changes.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the calling thread is.
#[must_use]
pub fn kind() -> Kind {
    KIND.get()
}

/// How many threads are about to be started, or have not told yet.
static UNBORN: Mutex<usize> = Mutex::new(0);
static BORN: Condvar = Condvar::new();

fn unborn() -> MutexGuard<'static, usize> {
    lock(&UNBORN)
}

/// Waits until every thread that was about to be started has told what it is.
pub fn settle() {
    let all_told = BORN.wait_while(unborn(), |unborn| *unborn > 0);
    drop(all_told.unwrap_or_else(PoisonError::into_inner));
}

/// Starts a thread of that kind, which tells what it is and runs `body`.
///
/// # Errors
///
/// When the machine lacks threads.
pub fn spawn<T: Send + 'static>(
    kind: Kind,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let birth = Birth::of(kind);
    Builder::new().name(name.to_owned()).spawn(move || {
        birth.happens();
        body()
    })
}

/// A thread that is about to be started in a way of its own: made by its parent, and used up by the new thread.
#[derive(Debug)]
#[must_use = "the new thread is to call `happens` before anything else"]
pub struct Birth {
    parent: Kind,
    child: Kind,
}

impl Birth {
    /// The calling thread is about to start one of that kind.
    pub fn of(child: Kind) -> Self {
        *unborn() += 1;
        let parent = kind();
        Self { parent, child }
    }

    /// The calling thread is the new one.
    pub fn happens(self) {
        KIND.set(self.child);
        if self.parent != self.child
            && let Some(told) = TOLD.get()
        {
            told(self.parent, self.child);
        }
    }
}

/// It has happened, or the thread could not be started.
impl Drop for Birth {
    fn drop(&mut self) {
        *unborn() -= 1;
        BORN.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    #[test]
    fn only_a_thread_whose_parent_is_something_else_tells() {
        static SEEN: Mutex<Vec<Kind>> = Mutex::new(Vec::new());
        tell(|_, kind| SEEN.lock().unwrap().push(kind));
        let birth = Birth::of(Kind::Session);
        let session = thread::spawn(|| {
            birth.happens();
            for kind in [Kind::Session, Kind::Pool] {
                let birth = Birth::of(kind);
                thread::spawn(|| birth.happens()).join().unwrap();
            }
            kind()
        });
        settle();
        assert_eq!(SEEN.lock().unwrap().first(), Some(&Kind::Session));
        assert_eq!(session.join().unwrap(), Kind::Session);
        drop(Birth::of(Kind::Worker));
        settle();
        assert_eq!(*SEEN.lock().unwrap(), [Kind::Session, Kind::Pool]);
        assert_eq!(kind(), Kind::Main);
    }
}
