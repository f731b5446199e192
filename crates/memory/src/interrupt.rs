//! Getting a thread out of a system call in which a peer holds it.
//!
//! A system call that sleeps ends with `EINTR` when its thread handles a signal meanwhile, unless the
//! handler was installed with `SA_RESTART`. The signal is SIGURG, which does nothing to a process that does
//! not ask for it. A process that uses it for something else cannot be helped here: its handler must not restart system
//! calls, and is replaced if it came first.

use std::ffi::c_int;
use std::sync::Once;

use libc::SIGURG;

/// A thread that can be interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Interruptible {
    thread: libc::pid_t,
}

extern "C" fn nothing(_signal: c_int) {}

impl Interruptible {
    /// The calling thread, which lets the signal through from now on. From the first time on, SIGURG interrupts what
    /// sleeps and does nothing else.
    #[must_use]
    pub fn current() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let handler: extern "C" fn(c_int) = nothing;
            // SAFETY: zeroes are an empty mask; not SA_RESTART, above all.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_ONSTACK;
            // SAFETY: a whole action, whose handler touches nothing.
            let done = unsafe { libc::sigaction(SIGURG, &raw const action, std::ptr::null_mut()) };
            assert_eq!(done, 0, "SIGURG can be handled");
        });
        // SAFETY: zeroes are a set, which is made an empty one next.
        let mut own: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is there.
        unsafe { libc::sigemptyset(&raw mut own) };
        // SAFETY: as above.
        unsafe { libc::sigaddset(&raw mut own, SIGURG) };
        // SAFETY: reads the set, and changes the mask of this thread alone.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const own, std::ptr::null_mut()) };
        // SAFETY: asks for a number.
        let thread = unsafe { libc::gettid() };
        Self { thread }
    }

    /// Ends the system call in which the thread sleeps, if it does. One that is about to sleep may miss it, so
    /// a caller that means it does it again. A thread that has ended, or another one that has
    /// its number by now, takes no harm.
    pub fn interrupt(self) {
        // SAFETY: asks for a number.
        let process = unsafe { libc::getpid() };
        // SAFETY: sends a signal, to a thread of this process or to none.
        unsafe { libc::syscall(libc::SYS_tgkill, process, self.thread, SIGURG) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_read_that_waits_for_ever_is_ended() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let (tell, told) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            tell.send(Interruptible::current()).unwrap();
            rustix::io::read(&reader, &mut [0; 1])
        });
        let sleeper_thread = told.recv().unwrap();
        while !sleeper.is_finished() {
            sleeper_thread.interrupt();
            thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), Err(Errno::INTR));
        sleeper_thread.interrupt();
    }
}
