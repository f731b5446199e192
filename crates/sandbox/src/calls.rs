//! Which system calls each kind of thread makes: found by tracing every kind of disk through its life, and
//! read off the libraries for what happens rarely (aborting, memory that runs short).
//!
//! A thread hands its filter down to those it starts, which can only narrow it. So each kind is allowed
//! what it needs itself and what those need that it [`starts`].

use std::collections::BTreeSet;

use libc::c_long;
use pollux_threads::Kind;

use crate::plan::Needs;

/// A call, and with which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub call: c_long,
    pub when: When,
}

/// With which arguments a call is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    Always,
    /// That argument is this.
    Is(u8, u32),
    /// That argument has all of these bits.
    Has(u8, u32),
    /// That argument has none of these bits.
    Lacks(u8, u32),
    /// That argument is the number of this process.
    IsThisProcess(u8),
    /// That argument is none of these.
    IsNeither(u8, [u32; 2]),
}

pub const fn any(call: c_long) -> Rule {
    let when = When::Always;
    Rule { call, when }
}

pub const fn only(call: c_long, when: When) -> Rule {
    Rule { call, when }
}

/// The calls that only some disks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Always,
    Files,
    Images,
    IoUring,
    Driver,
    Control,
    Cluster,
}

/// What these kinds of threads do, where the disks are such.
struct Row {
    who: &'static [Kind],
    need: Need,
    rules: &'static [Rule],
}

const fn row(who: &'static [Kind], need: Need, rules: &'static [Rule]) -> Row {
    Row { who, need, rules }
}

/// What stands in place of a call that a tracer has taken away (`strace -e inject`). The kernel does nothing
/// for it.
const TAKEN_AWAY: c_long = 0xffff_ffff;

// As the filter sees them: unsigned.
const PROT_EXEC: u32 = 4;
const CLONE_THREAD: u32 = 0x1_0000;
const AF_UNIX: u32 = 1;
const NOBODY: u32 = 0;
const F_GETFD: u32 = 1;
const F_GETFL: u32 = 3;
const F_DUPFD_CLOEXEC: u32 = 1030;
/// `RUSAGE_THREAD`: how often it was preempted, which tells a thread that polls that others want its processor.
const ITS_OWN_USAGE: u32 = 1;
const PR_SET_NAME: u32 = 15;
const PR_SET_NO_NEW_PRIVS: u32 = 38;
/// `_IO(0x12, 119)`: what is asked of a device itself.
const BLKDISCARD: u32 = 0x1277;
/// Whether a connection is waited for.
const FIONBIO: u32 = 0x5421;
/// How many bytes of a message are there.
const FIONREAD: u32 = 0x541b;
/// `O_WRONLY | O_NONBLOCK | O_CLOEXEC`, and the same with `O_LARGEFILE`, which some libraries add: how the pipe is
/// opened anew through which a driver is called.
const OPEN_PIPE: [u32; 2] = [0x8_0801, 0x8_0801 | LARGEFILE];
const LARGEFILE: u32 = if cfg!(target_arch = "x86_64") {
    0x8000
} else {
    0x2_0000
};

/// Memory, locks, time, the log, how a thread or the process ends, well or badly, and the handlers of
/// signals, which run on any thread.
const EVERY_THREAD: &[Rule] = &[
    any(TAKEN_AWAY),
    any(libc::SYS_brk),
    any(libc::SYS_clock_gettime),
    any(libc::SYS_clock_nanosleep),
    any(libc::SYS_close),
    any(libc::SYS_exit),
    any(libc::SYS_exit_group),
    // A build with assertions checks whether what it closes is open.
    only(libc::SYS_fcntl, When::Is(1, F_GETFD)),
    any(libc::SYS_futex),
    any(libc::SYS_getpid),
    any(libc::SYS_getrandom),
    only(libc::SYS_getrusage, When::Is(0, ITS_OWN_USAGE)),
    any(libc::SYS_gettid),
    any(libc::SYS_madvise),
    only(libc::SYS_mmap, When::Lacks(2, PROT_EXEC)),
    only(libc::SYS_mprotect, When::Lacks(2, PROT_EXEC)),
    any(libc::SYS_mremap),
    any(libc::SYS_munmap),
    any(libc::SYS_read),
    any(libc::SYS_restart_syscall),
    any(libc::SYS_rt_sigaction),
    any(libc::SYS_rt_sigprocmask),
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_sched_getaffinity),
    any(libc::SYS_sched_yield),
    // A handler's as well: of memory that its owner has truncated, whose session it ends.
    any(libc::SYS_shutdown),
    only(libc::SYS_sendto, When::Is(4, NOBODY)),
    any(libc::SYS_sigaltstack),
    only(libc::SYS_tgkill, When::IsThisProcess(0)),
    any(libc::SYS_write),
    any(libc::SYS_writev),
];

/// All but the pipes of drivers are refused: see `REFUSED`.
const OPENING: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_open),
    any(libc::SYS_openat),
];

/// To start a thread, and what a thread does before its own filter is in force.
const STARTING_THREADS: &[Rule] = &[
    only(libc::SYS_clone, When::Has(0, CLONE_THREAD)),
    any(libc::SYS_clone3),
    // These two can only take away more.
    any(libc::SYS_landlock_restrict_self),
    any(libc::SYS_seccomp),
    only(libc::SYS_prctl, When::Is(0, PR_SET_NAME)),
    only(libc::SYS_prctl, When::Is(0, PR_SET_NO_NEW_PRIVS)),
    any(libc::SYS_rseq),
    any(libc::SYS_set_robust_list),
];

use Kind::{
    Cluster, Control, DriverControl, DriverPatience, Main, Pool, Session, Signals, Watchdog, Worker,
};

const TABLE: &[Row] = &[
    row(
        &[Main],
        Need::Always,
        &[
            // For its workers: their wait points, and the CPUs on which they run.
            any(libc::SYS_epoll_create1),
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_eventfd2),
            any(libc::SYS_sched_setaffinity),
        ],
    ),
    row(
        &[Signals],
        Need::Always,
        &[any(libc::SYS_ppoll), any(libc::SYS_recvfrom)],
    ),
    row(
        &[Session],
        Need::Always,
        &[
            any(libc::SYS_accept4),
            // It sleeps until all of a message is there.
            any(libc::SYS_epoll_create1),
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_epoll_pwait),
            any(libc::SYS_eventfd2),
            any(libc::SYS_fcntl),
            // The path of its own socket, while it removes that in the end.
            any(libc::SYS_flock),
            any(libc::SYS_fstat),
            any(libc::SYS_fstatfs),
            any(libc::SYS_ftruncate),
            any(libc::SYS_getsockopt),
            // Is a descriptor that a frontend has sent one end of a pair?
            any(libc::SYS_getpeername),
            any(libc::SYS_getsockname),
            only(libc::SYS_ioctl, When::Is(1, FIONBIO)),
            only(libc::SYS_ioctl, When::Is(1, FIONREAD)),
            any(libc::SYS_memfd_create),
            any(libc::SYS_ppoll),
            // What kind of descriptor a frontend has sent.
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_readlink),
            any(libc::SYS_readlinkat),
            any(libc::SYS_recvmsg),
            any(libc::SYS_sendmsg),
            any(libc::SYS_statx),
            any(libc::SYS_timerfd_create),
            // Its own socket, in the end: Landlock sees to it that nothing else goes.
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_unlink),
            any(libc::SYS_unlinkat),
        ],
    ),
    row(
        &[Worker],
        Need::Always,
        &[
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_epoll_pwait),
            any(libc::SYS_ppoll),
            // Kicks, without waiting.
            any(libc::SYS_preadv2),
            any(libc::SYS_timerfd_settime),
        ],
    ),
    row(
        &[Worker, Pool],
        Need::Files,
        &[
            any(libc::SYS_pread64),
            any(libc::SYS_preadv2),
            any(libc::SYS_pwrite64),
            any(libc::SYS_pwritev2),
        ],
    ),
    row(
        &[Pool],
        Need::Files,
        &[
            any(libc::SYS_fallocate),
            any(libc::SYS_fdatasync),
            only(libc::SYS_ioctl, When::Is(1, BLKDISCARD)),
        ],
    ),
    // It waits for a sync that another thread has begun.
    row(
        &[Pool],
        Need::Images,
        &[
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_epoll_pwait),
            any(libc::SYS_ftruncate),
            any(libc::SYS_lseek),
        ],
    ),
    // Whoever lets go of a disk last gives up the locks of its file.
    row(
        &[Main, Signals, Session],
        Need::Files,
        &[any(libc::SYS_fcntl)],
    ),
    // Before its file is another's, and its size once it is its own again: `lock=running`.
    row(
        &[Session],
        Need::Files,
        &[any(libc::SYS_fdatasync), any(libc::SYS_lseek)],
    ),
    // A file that grows, or has grown.
    row(
        &[Control],
        Need::Files,
        &[any(libc::SYS_ftruncate), any(libc::SYS_lseek)],
    ),
    row(
        &[Session],
        Need::IoUring,
        &[
            any(libc::SYS_io_uring_register),
            any(libc::SYS_io_uring_setup),
        ],
    ),
    row(
        &[Worker],
        Need::IoUring,
        &[
            any(libc::SYS_io_uring_enter),
            any(libc::SYS_io_uring_register),
        ],
    ),
    // Questions to the server, by any thread.
    row(
        &[Main, Signals, Session, Worker, DriverControl],
        Need::Driver,
        &[
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_eventfd2),
            any(libc::SYS_fcntl),
            any(libc::SYS_ppoll),
            any(libc::SYS_recvmsg),
            any(libc::SYS_sendmsg),
        ],
    ),
    // A server that comes back: a new connection, with the memory and the descriptors of the old one.
    row(
        &[Main, DriverControl],
        Need::Driver,
        &[
            any(libc::SYS_connect),
            any(libc::SYS_fstat),
            any(libc::SYS_ftruncate),
            any(libc::SYS_getsockopt),
            any(libc::SYS_memfd_create),
            any(libc::SYS_recvfrom),
            any(libc::SYS_setsockopt),
            any(libc::SYS_statx),
            only(libc::SYS_socket, When::Is(0, AF_UNIX)),
            only(libc::SYS_socketpair, When::Is(0, AF_UNIX)),
            // A connection that waits, or does not.
            only(libc::SYS_ioctl, When::Is(1, FIONBIO)),
        ],
    ),
    row(
        &[Control],
        Need::Control,
        &[
            any(libc::SYS_accept4),
            // Its runtime, which the thread makes for itself.
            any(libc::SYS_epoll_create1),
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_epoll_pwait),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_epoll_wait),
            any(libc::SYS_eventfd2),
            only(libc::SYS_fcntl, When::Is(1, F_DUPFD_CLOEXEC)),
            // A build with assertions checks whether a socket is one that no thread waits for.
            only(libc::SYS_fcntl, When::Is(1, F_GETFL)),
            // Who is at the other end.
            any(libc::SYS_getsockopt),
            any(libc::SYS_recvfrom),
        ],
    ),
    row(&[Cluster], Need::Cluster, STARTING_THREADS),
    row(&[Cluster], Need::Cluster, crate::cluster::NETWORK_CLIENT),
];

/// What is answered with an error, as by an older kernel or to a process without rights, because libraries
/// try it and can do without. It is in force in all threads, beside what each is allowed; of it, those of a cluster's
/// library have only the first.
pub const REFUSED: &[(u32, &[Rule])] = &[
    // Its flags lie in memory, where no filter sees them: the C library tries `clone` then.
    (errno(libc::ENOSYS), &[any(libc::SYS_clone3)]),
    // The C library counts the processors; the standard library reads the program's symbols.
    (
        errno(libc::EACCES),
        &[
            #[cfg(target_arch = "x86_64")]
            only(libc::SYS_open, When::IsNeither(1, OPEN_PIPE)),
            only(libc::SYS_openat, When::IsNeither(2, OPEN_PIPE)),
        ],
    ),
];

pub const fn errno(error: i32) -> u32 {
    error.unsigned_abs()
}

/// Which kinds of threads a thread of kind `of` may start.
fn starts(of: Kind, needs: Needs) -> Vec<Kind> {
    let (pool, patience) = (
        needs.files.then_some(Pool),
        needs.driver.then_some(DriverPatience),
    );
    let some: &[Option<Kind>] = match of {
        Main => &[
            Some(Signals),
            Some(Session),
            Some(Worker),
            Some(Watchdog),
            needs.driver.then_some(DriverControl),
            needs.control.then_some(Control),
        ],
        Session | Worker => &[pool, patience],
        Signals | DriverControl => &[patience],
        // An image that grows before anybody has used it.
        Control => &[needs.images.then_some(Pool)],
        // The library's own are of the same kind.
        Watchdog | Pool | DriverPatience | Cluster => &[],
    };
    some.iter().copied().flatten().collect()
}

/// All that a thread of kind `of` is allowed.
pub fn allowed(of: Kind, needs: Needs) -> BTreeSet<Rule> {
    let mut rules: BTreeSet<Rule> = EVERY_THREAD.iter().copied().collect();
    if of != Cluster {
        rules.extend(OPENING);
    }
    let needed = |need| match need {
        Need::Always => true,
        Need::Files => needs.files,
        Need::Images => needs.images,
        Need::IoUring => needs.io_uring,
        Need::Driver => needs.driver,
        Need::Control => needs.control,
        Need::Cluster => needs.cluster,
    };
    for row in TABLE {
        if row.who.contains(&of) && needed(row.need) {
            rules.extend(row.rules);
        }
    }
    let children = starts(of, needs);
    if !children.is_empty() {
        rules.extend(STARTING_THREADS);
    }
    for child in children {
        rules.extend(allowed(child, needs));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Needs = Needs {
        files: true,
        images: true,
        io_uring: true,
        driver: true,
        control: true,
        cluster: true,
    };

    fn calls(of: Kind, needs: Needs) -> BTreeSet<c_long> {
        allowed(of, needs).iter().map(|rule| rule.call).collect()
    }

    #[test]
    fn nobody_starts_programs_or_talks_to_the_network() {
        for kind in Kind::ALL {
            let calls = calls(kind, ALL);
            for never in [
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_ptrace,
                libc::SYS_process_vm_writev,
                libc::SYS_bind,
                libc::SYS_listen,
                libc::SYS_setuid,
                libc::SYS_mount,
                libc::SYS_bpf,
                libc::SYS_kill,
                // What the handler of a violation ends the process with.
                libc::SYS_getppid,
            ] {
                assert!(!calls.contains(&never), "{kind:?} may do {never}");
            }
        }
    }

    #[test]
    fn what_no_disk_needs_nobody_may() {
        let none = Needs::default();
        for kind in Kind::ALL {
            let calls = calls(kind, none);
            for idle in [
                libc::SYS_io_uring_setup,
                libc::SYS_fallocate,
                libc::SYS_socket,
                libc::SYS_connect,
                libc::SYS_pwritev2,
            ] {
                assert!(!calls.contains(&idle), "{kind:?} may do {idle}");
            }
        }
        assert!(!calls(Worker, none).contains(&libc::SYS_clone));
    }

    #[test]
    fn a_thread_may_what_those_may_that_it_starts() {
        for parent in Kind::ALL {
            for child in starts(parent, ALL) {
                assert!(calls(parent, ALL).is_superset(&calls(child, ALL)));
            }
        }
    }
}
