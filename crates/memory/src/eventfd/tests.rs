use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::thread;

use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

fn new() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

/// More than the kernel keeps of what has ended.
#[test]
fn each_of_many_signals_counts() {
    const TIMES: u64 = 10_000;
    prepare().unwrap();
    let fd = new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..TIMES).for_each(|_| signal(&fd).unwrap()));
        }
    });
    assert_eq!(read(&fd), Ok(2 * TIMES));
    assert_eq!(read(&fd), Err(Errno::AGAIN));
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// What they do is interrupted, too.
#[test]
fn threads_may_share_a_context() {
    const TIMES: u64 = 100_000;
    let handler = nothing as *const () as libc::sighandler_t;
    // SAFETY: a handler that does nothing, of a signal that nothing else here uses.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler) };
    assert_ne!(before, libc::SIG_ERR);
    let (context, fd) = (Context::new().unwrap(), Arc::new(new()));
    let signals = [(); 3].map(|()| {
        let fd = Arc::clone(&fd);
        thread::spawn(move || (0..TIMES).for_each(|_| context.signal(fd.as_fd()).unwrap()))
    });
    // Most often there is nothing any more.
    let forgets = thread::spawn(move || (0..10 * TIMES).for_each(|_| context.forget().unwrap()));
    let threads = signals.into_iter().chain([forgets]).collect::<Vec<_>>();
    while threads.iter().any(|thread| !thread.is_finished()) {
        for thread in &threads {
            // SAFETY: it has not been joined, and the signal has a handler.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(read(&*fd), Ok(3 * TIMES));
}

#[test]
fn what_is_full_holds_nobody() {
    let fd = new();
    fcntl_setfl(&fd, OFlags::empty()).unwrap();
    rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    signal(&fd).unwrap();
    signal(&fd).unwrap();
    assert_eq!(read(&fd), Ok(u64::MAX));
    assert_eq!(read(&fd), Err(Errno::AGAIN));
}

#[test]
fn what_is_no_eventfd_is_refused() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    assert_eq!(signal(&reader), Err(Errno::INVAL));
}

#[test]
fn a_thread_that_ends_may_signal_once_more() {
    struct AtItsEnd(OwnedFd);
    impl Drop for AtItsEnd {
        fn drop(&mut self) {
            assert_eq!(signal(&self.0), Ok(()));
        }
    }
    thread_local! {
        static LAST: RefCell<Option<AtItsEnd>> = const { RefCell::new(None) };
    }
    let fd = new();
    let last = fd.try_clone().unwrap();
    let ends = thread::spawn(move || {
        // What was used first goes last.
        LAST.with(|slot| *slot.borrow_mut() = Some(AtItsEnd(last)));
        signal(new()).unwrap();
    });
    ends.join().unwrap();
    assert_eq!(read(&fd), Ok(1));
}

/// The system has a bounded number of contexts, and it takes long to give one back.
#[test]
fn threads_take_the_contexts_of_those_that_have_ended() {
    const THREADS: u64 = 1000;
    let in_use = || {
        let told = std::fs::read_to_string("/proc/sys/fs/aio-nr").unwrap();
        told.trim().parse::<u64>().unwrap()
    };
    let before = in_use();
    for _ in 0..THREADS {
        thread::spawn(|| signal(new()).unwrap()).join().unwrap();
    }
    let more = in_use().saturating_sub(before);
    assert!(more < THREADS / 2, "{more} more");
}

/// The child knows the numbers of its parent's.
#[test]
fn a_process_that_was_forked_has_contexts_of_its_own() {
    const PARENTS: Context = Context(8);
    let fd = new();
    assert_eq!(PARENTS.signal(fd.as_fd()), Err(Errno::INVAL));
    let own = Own::default();
    own.context.set(Some(PARENTS));
    free().push(PARENTS);
    own.signal(fd.as_fd()).unwrap();
    assert_eq!(read(&fd), Ok(1));
}
