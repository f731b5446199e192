//! One thread of another process, run instruction by instruction.

use std::io;

use libc::{c_int, c_uint, c_void, pid_t};

/// A thread that stands still between steps. The process it belongs to is a child of ours.
///
/// All of it is to be used by one thread, which is the one that the kernel knows as the tracer.
#[derive(Debug)]
pub struct Stepping {
    thread: pid_t,
}

impl Stepping {
    /// Stops the thread `id`. In a system call that waits, that call returns early.
    pub fn stop(id: u32) -> io::Result<Self> {
        let thread = pid_t::try_from(id).expect("the kernel's thread ids are positive");
        trace(libc::PTRACE_SEIZE, thread)?;
        trace(libc::PTRACE_INTERRUPT, thread)?;
        let stepping = Self { thread };
        stepping.wait()?;
        Ok(stepping)
    }

    /// Runs one instruction. A system call is one.
    pub fn step(&self) -> io::Result<()> {
        trace(libc::PTRACE_SINGLESTEP, self.thread)?;
        self.wait()
    }

    /// Runs until a system call begins or ends. False if it is `over` before: the thread runs on then, and its process
    /// is to be killed.
    pub fn next_call(&self, over: impl Fn() -> bool) -> io::Result<bool> {
        trace(libc::PTRACE_SYSCALL, self.thread)?;
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes one number to `status`.
            let waited = unsafe {
                libc::waitpid(self.thread, &raw mut status, libc::__WALL | libc::WNOHANG)
            };
            match waited {
                0 if over() => return Ok(false),
                0 => std::thread::yield_now(),
                1.. if libc::WIFSTOPPED(status) => return Ok(true),
                1.. => return Err(io::Error::other(format!("the thread ended: {status:#x}"))),
                _ => return Err(io::Error::last_os_error()),
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: the kernel writes one number to `status`.
        let waited = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::WIFSTOPPED(status) {
            Ok(())
        } else {
            Err(io::Error::other(format!("the thread ended: {status:#x}")))
        }
    }
}

/// The thread goes on, or, if its process was killed, ends.
impl Drop for Stepping {
    fn drop(&mut self) {
        if trace(libc::PTRACE_DETACH, self.thread).is_err() {
            // Its end is told to us alone, and its process has not ended before.
            let _ = self.wait();
        }
    }
}

fn trace(request: c_uint, thread: pid_t) -> io::Result<()> {
    let nothing = std::ptr::null_mut::<c_void>();
    // SAFETY: none of the requests used here takes an address; they concern another process.
    let done = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    match c_int::try_from(done) {
        Ok(0) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
