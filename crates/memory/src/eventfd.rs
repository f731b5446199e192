//! Eventfds that a peer has as well, used without ever waiting for it.
//!
//! Whether a write waits while the count is full, and a read while it is zero, is a flag of the open file. That is the
//! peer's to change as much as ours, at any moment after any check, and an eventfd cannot be opened anew.
//!
//! A read may be told not to wait (`RWF_NOWAIT`). A write may not. But a signal of the kernel's own never waits, and an
//! asynchronous operation gives one to the eventfd that it names as it ends (`IOCB_FLAG_RESFD` of `io_submit`). So an
//! operation is submitted that ends at once: a read of no bytes.

use std::cell::Cell;
use std::ffi::{c_long, c_ulong};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The first context, for threads that can have none of their own.
static FIRST: OnceLock<Context> = OnceLock::new();

/// Contexts of threads that have ended: the kernel takes some 30 ms to give one back.
static FREE: Mutex<Vec<Context>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Context>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees that the kernel can do this, before the first eventfd of a peer's is used.
///
/// # Errors
///
/// What it lacks, and what to do.
pub fn prepare() -> io::Result<()> {
    if FIRST.get().is_some() {
        return Ok(());
    }
    let own = eventfd(0, EventfdFlags::CLOEXEC)?;
    let context = Context::unused();
    let works = context.and_then(|context| {
        context.signal(own.as_fd())?;
        context.forget()?;
        read(&own)
    });
    if works.is_err() {
        free().extend(context);
    }
    let context = works.and(context).map_err(|error| {
        let remedy = match error {
            Errno::AGAIN => {
                "other programs use all contexts of the system; raise the sysctl fs.aio-max-nr"
            }
            Errno::NOSYS => "a kernel with CONFIG_AIO is needed",
            Errno::OPNOTSUPP | Errno::INVAL => "Linux 5.8 or newer is needed",
            Errno::NOMEM => {
                "it has no memory for that; free some, or raise the memory limit of this service"
            }
            _ => {
                "a filter of system calls must allow io_setup, io_submit, io_getevents and preadv2"
            }
        };
        let said = format!("the kernel cannot signal an eventfd by io_submit: {error}; {remedy}");
        io::Error::new(io::ErrorKind::Unsupported, said)
    })?;
    if let Err(one_more) = FIRST.set(context) {
        free().push(one_more);
    }
    Ok(())
}

/// Adds one to the count of an eventfd, and wakes all that wait for it.
///
/// # Errors
///
/// Where it is none. A count that is full stays so, which is no error.
pub fn signal(eventfd: impl AsFd) -> Result<(), Errno> {
    let eventfd = eventfd.as_fd();
    let by = |own: &Own| own.signal(eventfd);
    // What a thread drops as it ends may signal once more, when its own context is gone.
    OWN.try_with(by).unwrap_or_else(|_| by(&Own::default()))
}

/// Takes the count of an eventfd.
///
/// # Errors
///
/// `EAGAIN` where it is zero.
pub fn read(eventfd: impl AsFd) -> Result<u64, Errno> {
    let mut count = [0; 8];
    let parts = &mut [IoSliceMut::new(&mut count)];
    // The position is that of what has none.
    preadv2(&eventfd, parts, u64::MAX, ReadWriteFlags::NOWAIT)?;
    Ok(u64::from_ne_bytes(count))
}

/// Where operations are submitted. Any thread may, but those that share one wait for each other.
#[derive(Clone, Copy, Debug)]
struct Context(c_ulong);

/// An operation: `struct iocb`.
#[derive(Debug, Default)]
#[repr(C)]
struct Operation {
    data: u64,
    key: [u32; 2],
    /// `IOCB_CMD_PREAD`.
    read: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    /// `IOCB_FLAG_RESFD`: it gives a signal as it ends.
    flags: u32,
    signalled: u32,
}

const SIGNALS: u32 = 1;

/// What is told of one that has ended: `struct io_event`.
type Ended = [u64; 4];

impl Context {
    /// One that no thread has.
    fn unused() -> Result<Self, Errno> {
        let known = std::iter::from_fn(|| free().pop()).find(|context| context.is_there());
        known.map_or_else(Self::new, Ok)
    }

    /// For one operation at a time.
    fn new() -> Result<Self, Errno> {
        let (mut id, operations): (c_ulong, c_long) = (0, 1);
        // SAFETY: the kernel writes the number of a context there.
        match unsafe { libc::syscall(libc::SYS_io_setup, operations, &raw mut id) } {
            0 => Ok(Self(id)),
            _ => Err(last_error()),
        }
    }

    fn signal(self, eventfd: BorrowedFd<'_>) -> Result<(), Errno> {
        let eventfd = eventfd.as_raw_fd().cast_unsigned();
        let mut operation = Operation {
            file: eventfd,
            flags: SIGNALS,
            signalled: eventfd,
            ..Operation::default()
        };
        let mut operations = [&raw mut operation];
        let (how_many, operations): (c_long, _) = (1, operations.as_mut_ptr());
        loop {
            // SAFETY: the kernel reads one operation, and writes its key. The operation itself touches no memory.
            let done = unsafe { libc::syscall(libc::SYS_io_submit, self.0, how_many, operations) };
            if done == 1 {
                return Ok(());
            }
            match last_error() {
                Errno::AGAIN => self.forget()?,
                error => return Err(error),
            }
        }
    }

    /// A process that was forked has none of its parent's.
    fn is_there(self) -> bool {
        self.forget().is_ok()
    }

    /// Makes room: the kernel keeps what has ended until it is asked for that.
    #[cold]
    fn forget(self) -> Result<(), Errno> {
        let mut ended = [Ended::default(); 128];
        let (least, most): (c_long, c_long) = (0, 128);
        let no_time = Timespec::default();
        // SAFETY: the kernel writes at most so many events there, and reads a time.
        let told = unsafe {
            let (ended, no_time) = (ended.as_mut_ptr(), &raw const no_time);
            libc::syscall(libc::SYS_io_getevents, self.0, least, most, ended, no_time)
        };
        match (told, last_error()) {
            // Another thread has made room, and a signal came.
            (..0, Errno::INTR) | (0.., _) => Ok(()),
            (_, error) => Err(error),
        }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A thread without a context asks for one at each of so many signals: that takes as long as many of them.
const ASKS_EVERY: u32 = 1024;

/// A thread's context, from the first signal until the thread ends.
#[derive(Debug, Default)]
struct Own {
    context: Cell<Option<Context>>,
    /// Signals since it has asked for one, and got none.
    without: Cell<u32>,
}

impl Own {
    fn signal(&self, eventfd: BorrowedFd<'_>) -> Result<(), Errno> {
        let context = self.context()?;
        match context.signal(eventfd) {
            Err(Errno::INVAL) if !context.is_there() => {
                self.context.set(None);
                self.without.set(0);
                self.context()?.signal(eventfd)
            }
            done => done,
        }
    }

    fn context(&self) -> Result<Context, Errno> {
        if let Some(context) = self.context.get() {
            return Ok(context);
        }
        let without = self.without.get();
        self.without.set((without + 1) % ASKS_EVERY);
        if let (1.., Some(first)) = (without, FIRST.get()) {
            return Ok(*first);
        }
        match Context::unused() {
            Ok(own) => {
                self.context.set(Some(own));
                Ok(own)
            }
            // The system has none left.
            Err(error) => FIRST.get().copied().ok_or(error),
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        free().extend(self.context.get());
    }
}

thread_local! {
    static OWN: Own = Own::default();
}

#[cfg(test)]
mod tests;
