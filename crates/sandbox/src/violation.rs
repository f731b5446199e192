//! What happens when a thread does what it may not: the process says what it was, and dies of SIGSYS.
//!
//! It could have been killed at once; but then the call would stay unknown, and a library with a new habit
//! could not be told from an attack.

use std::io::Write;

use libc::{c_int, c_uint, c_void, siginfo_t};

/// The part of a `siginfo_t` that SIGSYS fills, which crate `libc` does not name.
#[repr(C)]
struct Sigsys {
    signo: c_int,
    errno: c_int,
    code: c_int,
    call_addr: *const c_void,
    syscall: c_int,
    arch: c_uint,
}

/// Installs the handler.
pub fn handle() -> std::io::Result<()> {
    let handler = |info: &siginfo_t| {
        let info: *const siginfo_t = info;
        // SAFETY: this runs for SIGSYS alone, for which the kernel lays the structure out that way; a process
        // that sends the signal itself leaves other numbers there, which are only printed.
        let call = unsafe { (*info.cast::<Sigsys>()).syscall };
        die(call);
    };
    // SAFETY: the handler allocates nothing, takes no lock, and never returns: it formats numbers on its
    // stack, reads a thread-local without a destructor, and makes two system calls.
    unsafe { signal_hook_registry::register_sigaction(libc::SIGSYS, handler) }.map(drop)
}

fn die(call: c_int) -> ! {
    let mut line = [0; 160];
    let room = line.len();
    let mut rest = &mut line[..];
    // What does not fit is left out.
    let _ = writeln!(
        rest,
        "pollux: the sandbox ends this process: a thread of the kind `{}` made system call {call}, which it may not",
        pollux_threads::kind().name(),
    );
    let used = room - rest.len();
    let _ = rustix::io::write(rustix::stdio::stderr(), &line[..used]);
    // Nobody may do this either. A violation while the signal is blocked, as it is in its handler, ends the
    // process, with the status and the core of a SIGSYS.
    let _ = rustix::process::getppid();
    // It came from another process's `kill`, and there is no filter.
    std::process::abort()
}
