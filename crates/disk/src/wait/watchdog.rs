//! Gets a thread out of a descriptor of a peer's that holds it.
//!
//! Descriptors for kicks and calls are non-blocking. But the flag belongs to the open file, and so to the
//! peer as much as to us, and an eventfd cannot be opened anew: a peer that fills the eventfd and clears the
//! flag again can have a write wait for ever, at any moment after any check. No flag of a single write helps
//! (`RWF_NOWAIT` is refused for eventfds), and to have the kernel signal it through an `io_uring` costs as much
//! again as the write.
//!
//! So a thread that uses such a descriptor says so, and sets a timer, unless it is set. When that runs out, the
//! watchdog interrupts the threads that it finds inside. A system call that does not wait takes no notice; one that
//! does ends with `EINTR`, and nothing else makes it end so: an `EINTR` proves what the peer did. (A pipe's lock takes
//! no notice either, so a pipe is taken only from a frontend that can hold no other disk by it: SECURITY.md.) To hold
//! the thread often, and for less than a tick each time, does not help a peer: the longer all of it takes, the surer it
//! is found. One that may read in `/proc` when the watchdog has run can let go in time, and has to do so each time.
//!
//! The thread may be a program's own, which is to see no other `EINTR`. So one that was found waits, as it leaves, for
//! the interrupt, and takes it where no system call waits.
//!
//! While there are no kicks or calls, nothing ticks. The timer is off while the watchdog rests, and it rests as all
//! threads here do: it arms, looks once more, and sleeps. A caller that finds it resting sets the timer, which does not
//! wake it. Where the calls of all threads are seldom, a caller turns the timer off again as it leaves: a tick after
//! each of them would cost more than the call. Where they are not, ticks are kept few: each takes the processor
//! from a worker (`docs/notes/0009-roads-not-taken.md`).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use pollux_memory::Interruptible;
use pollux_threads::{Kind, lock, spawn};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// How long after a call it looks, in the mean: at any time until twice as long. A signal that comes before the thread
/// waits does nothing, so one can be held for twice the longest of these.
const TICK: Duration = Duration::from_millis(20);

/// Calls further apart turn the timer off: two timers set for each cost less than the ticks between them.
const SELDOM: Duration = Duration::from_millis(2);

/// It uses no such descriptor.
const OUTSIDE: u8 = 0;
/// It uses one.
const INSIDE: u8 = 1;
/// It uses one, and is interrupted over that.
const FOUND: u8 = 2;

/// A thread that uses descriptors of peers.
struct Watched {
    state: AtomicU8,
    thread: Interruptible,
}

impl Watched {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(OUTSIDE),
            thread: Interruptible::current(),
        }
    }

    fn is_inside(&self) -> bool {
        self.state.load(Ordering::SeqCst) != OUTSIDE
    }

    /// Interrupts it, if it is inside. Is it? For the watchdog, with the list's lock.
    fn look(&self) -> bool {
        let (set, unset) = (Ordering::SeqCst, Ordering::SeqCst);
        let before = self.state.compare_exchange(INSIDE, FOUND, set, unset);
        let is_inside = before != Err(OUTSIDE);
        if is_inside {
            self.thread.interrupt();
        }
        is_inside
    }

    /// It uses no such descriptor any more.
    #[inline]
    fn leave(&self) {
        if self.state.swap(OUTSIDE, Ordering::SeqCst) == FOUND {
            take_interrupt();
        }
    }
}

/// Takes the interrupt that the watchdog sends to a thread that it has found.
#[cold]
fn take_interrupt() {
    // With this lock it sends it, so by now it has.
    drop(all());
    // Signals are handled where a system call returns: one that does nothing.
    let _ = rustix::thread::gettid();
}

/// All of them.
struct All {
    threads: Vec<Arc<Watched>>,
    /// When the timer was last set.
    set: Option<Instant>,
}

/// Its lock is held while the timer is set or turned off.
static WATCHED: Mutex<All> = Mutex::new(All {
    threads: Vec::new(),
    set: None,
});

/// Is the watchdog asleep, or about to, with no timer set?
static RESTING: AtomicBool = AtomicBool::new(false);

static TIMER: OnceLock<OwnedFd> = OnceLock::new();

fn all() -> MutexGuard<'static, All> {
    lock(&WATCHED)
}

/// A thread's entry in the list, until the thread ends.
struct Entry(Arc<Watched>);

impl Entry {
    fn new() -> Self {
        let own = Arc::new(Watched::new());
        all().threads.push(Arc::clone(&own));
        Self(own)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let threads = &mut all().threads;
        threads.retain(|watched| !Arc::ptr_eq(watched, &self.0));
    }
}

thread_local! {
    static ENTRY: Entry = Entry::new();
}

/// Starts the watchdog, once for the whole process, before the first descriptor of a peer's is used.
///
/// # Errors
///
/// When the machine lacks a thread or a descriptor.
pub fn start() -> io::Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _alone = lock(&STARTING);
    if TIMER.get().is_none() {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        spawn(Kind::Watchdog, "watchdog", || keep(TIMER.wait()))?;
        TIMER.set(timer).expect("nothing else starts it");
    }
    Ok(())
}

/// Writes to an eventfd or a pipe of a peer's.
///
/// # Errors
///
/// `EINTR` only where the peer has it wait.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    watched(|| rustix::io::write(fd, bytes))
}

/// Reads from an eventfd or a pipe of a peer's.
///
/// # Errors
///
/// `EINTR` only where the peer has it wait.
pub fn read(fd: impl AsFd, into: &mut [u8]) -> rustix::io::Result<usize> {
    // `NOWAIT` whatever the flags say; the position is that of what has none. Kernels that cannot do it have the
    // watchdog.
    let parts = &mut [IoSliceMut::new(into)];
    match preadv2(&fd, parts, u64::MAX, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => watched(|| rustix::io::read(&fd, into)),
        read => read,
    }
}

/// Runs `system_call`, which uses a descriptor of a peer's, and has it end with `EINTR` if it waits.
#[inline]
fn watched<T>(system_call: impl FnOnce() -> T) -> T {
    let mut system_call = Some(system_call);
    let mut run = |Entry(own): &Entry| {
        // A full fence, which pairs with the one in `keep`: that says that it rests, then reads which threads are
        // inside; we say that we are, then read whether it rests. One of us sees the other.
        own.state.swap(INSIDE, Ordering::SeqCst);
        let is_seldom = RESTING.load(Ordering::SeqCst) && set_timer();
        let ended = system_call.take().expect("it runs once")();
        own.leave();
        if is_seldom {
            turn_off();
        }
        ended
    };
    // What a thread drops as it ends may kick once more, when its entry is gone.
    let watched = ENTRY.try_with(&mut run);
    watched.unwrap_or_else(|_| run(&Entry::new()))
}

/// Has the watchdog look in a while, unless it will. Was that long since it was last to?
#[cold]
fn set_timer() -> bool {
    let mut all = all();
    if !RESTING.swap(false, Ordering::SeqCst) {
        return false;
    }
    run_out_after(a_tick());
    let now = Instant::now();
    let last = all.set.replace(now);
    last.is_none_or(|last| now.duration_since(last) > SELDOM)
}

/// Has the watchdog look no more, unless a thread is inside.
#[cold]
fn turn_off() {
    let all = all();
    let was_resting = RESTING.swap(true, Ordering::SeqCst);
    if all.threads.iter().any(|watched| watched.is_inside()) {
        RESTING.store(was_resting, Ordering::SeqCst);
    } else if !was_resting {
        run_out_after(Duration::ZERO);
    }
}

/// A tick that nobody can foresee.
fn a_tick() -> Duration {
    TICK.mul_f64(2.0 * fastrand::f64())
        .max(Duration::from_nanos(1))
}

/// The watchdog looks after so long a time; zero: not at all.
fn run_out_after(time: Duration) {
    let Some(timer) = TIMER.get() else { return };
    let time = Itimerspec {
        it_interval: Timespec::default(),
        it_value: time.try_into().expect("it is short"),
    };
    let set = timerfd_settime(timer, TimerfdTimerFlags::empty(), &time);
    set.expect("a timer of our own can be set");
}

fn keep(timer: &OwnedFd) -> ! {
    loop {
        {
            let all = all();
            RESTING.swap(true, Ordering::SeqCst);
            // All are looked at: no short cut.
            let inside = all.threads.iter().filter(|one| one.look()).count();
            if inside > 0 {
                RESTING.store(false, Ordering::SeqCst);
                run_out_after(a_tick());
            }
        }
        match rustix::io::read(timer, &mut [0; 8]) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("the watchdog's timer cannot be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
