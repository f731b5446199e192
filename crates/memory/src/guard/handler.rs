//! The handler of SIGBUS. All that it does is async-signal-safe.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Once, OnceLock};

use libc::{SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, siginfo_t};
use rustix::mm::{MapFlags, ProtFlags};

use super::entries::{Entry, find};

/// What SIGBUS led to before us.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Handles SIGBUS from now on. Once for the whole process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler: Handler = on_sigbus;
        let mut action = default_action();
        action.sa_sigaction = handler as usize;
        // On the stack that Rust gives each thread for signals, where there is one.
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        let mut before = default_action();
        // SAFETY: both are whole, and the handler is one for SA_SIGINFO.
        let done = unsafe { libc::sigaction(SIGBUS, &raw const action, &raw mut before) };
        assert_eq!(done, 0, "SIGBUS can be handled");
        BEFORE.set(before).unwrap_or_else(|_| unreachable!("once"));
    });
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn default_action() -> libc::sigaction {
    // SAFETY: zeroes are SIG_DFL, no flags, and an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO the signal's description.
    let described = unsafe { &*info };
    let code = described.si_code;
    // A page without a file behind it, or one whose memory has failed: both of them peer memory, if ours.
    if matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR) {
        // SAFETY: with these codes it holds an address.
        let address = unsafe { described.si_addr() } as usize;
        if let Some((entry, region)) = find(address) {
            // First: no other thread, nor the kernel, may find the zeroes before all can know.
            entry.tear();
            if replace(entry, &region, address) {
                return;
            }
        }
    }
    // Memory has failed that nothing has touched. If it is a peer's, the first touch has the other code.
    if code == libc::BUS_MCEERR_AO {
        // SAFETY: with this code it holds an address.
        let address = unsafe { described.si_addr() } as usize;
        if find(address).is_some() {
            return;
        }
    }
    pass_on(signal, info, context, code);
}

/// Puts zeroes where the region is. False if the kernel has none to give.
fn replace(entry: &Entry, region: &Range<usize>, address: usize) -> bool {
    // Under `vm.overcommit_memory=2` there may be none for all of it. Then for one page, fault by fault.
    let page = entry.page.load(Ordering::Relaxed);
    let page = address / page * page..address / page * page + page;
    zeroes(region) || zeroes(&page)
}

fn zeroes(at: &Range<usize>) -> bool {
    let start = ptr::with_exposed_provenance_mut::<c_void>(at.start);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: whole pages of a region which the interrupted thread keeps mapped, and to which no reference
    // exists (module `guard`).
    unsafe { rustix::mm::mmap_anonymous(start, at.len(), access, flags) }.is_ok()
}

/// Lets the signal do what it did before.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, code: c_int) {
    // Nothing repeats it: another process, or our own, has sent it, or the kernel tells of memory that has failed.
    let sent = code <= 0 || code == libc::BUS_MCEERR_AO;
    let before = BEFORE.get().copied().unwrap_or_else(default_action);
    match before.sa_sigaction {
        SIG_IGN if sent => {}
        // A fault that is ignored kills, as one without a handler does.
        SIG_DFL | SIG_IGN => die(signal, sent),
        function if before.sa_flags & SA_SIGINFO != 0 => {
            // SAFETY: it was installed as such a handler.
            let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
            function(signal, info, context);
            end_if_default(signal, sent);
        }
        function => {
            // SAFETY: it was installed as a handler without SA_SIGINFO.
            let function = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(function) };
            function(signal);
            end_if_default(signal, sent);
        }
    }
}

/// Ends the process where the handler of before has put the default back: it expects the signal again, as Rust's does,
/// and one that was `sent` does not come again. Without this the process would go on, and regions would be guarded no
/// more.
fn end_if_default(signal: c_int, sent: bool) {
    let mut now = default_action();
    // SAFETY: a whole action to be filled in.
    let known = unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) };
    if sent && known == 0 && now.sa_sigaction == SIG_DFL {
        die(signal, sent);
    }
}

/// Ends the process by the signal once the handler returns: the access is made again, or the signal sent.
fn die(signal: c_int, sent: bool) {
    let action = default_action();
    // SAFETY: a whole action.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if sent {
        // SAFETY: async-signal-safe; no memory is involved.
        unsafe { libc::raise(signal) };
    }
}
