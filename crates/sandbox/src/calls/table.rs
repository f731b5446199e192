//! The table: found by tracing every kind of disk through its life, and read off the libraries for what happens rarely
//! (aborting, memory that runs short).

use libc::c_long;
use pollux_threads::Kind::{
    Cluster, Control, DriverControl, Keeper, Main, Opener, Pool, Resizer, Session, Signals, Worker,
};

use super::rule::{Need, Row, Rule, TYPING, When, any, errno, only, row};
use crate::cluster::NETWORK_CLIENT;

/// What stands in place of a call that a tracer has taken away (`strace -e inject`). The kernel does nothing
/// for it.
const TAKEN_AWAY: c_long = 0xffff_ffff;

// As the filter sees them: unsigned.
const PROT_EXEC: u32 = 4;
const CLONE_THREAD: u32 = 0x1_0000;
pub const AF_UNIX: u32 = 1;
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

/// Memory, locks, time, the log, how a thread or the process ends, well or badly, and the handlers of
/// signals, which run on any thread.
pub const EVERY_THREAD: &[Rule] = &[
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
    any(libc::SYS_getcpu),
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

/// It is refused: see `REFUSED`.
pub const OPENING: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_open),
    any(libc::SYS_openat),
];

/// To start a thread, and what a thread does before its own filter is in force.
pub const STARTING_THREADS: &[Rule] = &[
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

/// To have the kernel signal an eventfd, which a write might wait for.
const SIGNALLING: &[Rule] = &[
    any(libc::SYS_io_getevents),
    any(libc::SYS_io_setup),
    any(libc::SYS_io_submit),
];

pub const TABLE: &[Row] = &[
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
    row(&[Signals], Need::Always, &[any(libc::SYS_recvfrom)]),
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
            // When a `fault` disk ends a request late.
            any(libc::SYS_timerfd_settime),
        ],
    ),
    // A call, and a kick of a disk's.
    row(&[Session, Worker], Need::Always, SIGNALLING),
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
    // It hands a sync to the threads of a file, of which there may be one more then.
    row(&[Pool], Need::Images, STARTING_THREADS),
    // The last owner of a disk gives up the locks of its file.
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
    // It tells what the disk is then, with the process at the other end.
    row(&[Resizer], Need::Control, &[any(libc::SYS_getsockopt)]),
    // A file that grows, or has grown.
    row(
        &[Resizer],
        Need::Files,
        &[any(libc::SYS_ftruncate), any(libc::SYS_lseek)],
    ),
    row(&[Session], Need::IoUring, &[any(libc::SYS_io_uring_setup)]),
    // A session drops its channels, and waits for what a disk that hangs has in flight.
    row(
        &[Session, Worker],
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
            // Of calls, without waiting.
            any(libc::SYS_preadv2),
            any(libc::SYS_recvmsg),
            any(libc::SYS_sendmsg),
        ],
    ),
    // A kick, as a call.
    row(&[DriverControl], Need::Driver, SIGNALLING),
    // A server that comes back: a new connection, with the memory of the old one.
    row(
        &[Main, DriverControl],
        Need::Driver,
        &[
            any(libc::SYS_connect),
            any(libc::SYS_getsockopt),
            any(libc::SYS_recvfrom),
            any(libc::SYS_setsockopt),
            only(libc::SYS_socket, When::Is(0, AF_UNIX)),
            only(libc::SYS_socketpair, When::Is(0, AF_UNIX)),
            // A connection that waits, or does not.
            only(libc::SYS_ioctl, When::Is(1, FIONBIO)),
        ],
    ),
    // More memory for rings, and for requests in memory that the server refuses.
    row(
        &[Main, Worker, DriverControl],
        Need::Driver,
        &[
            any(libc::SYS_fstat),
            any(libc::SYS_fstatfs),
            any(libc::SYS_ftruncate),
            any(libc::SYS_memfd_create),
            any(libc::SYS_statx),
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
            // The process at the other end.
            any(libc::SYS_getsockopt),
            any(libc::SYS_recvfrom),
            // Images come as descriptors.
            any(libc::SYS_recvmsg),
        ],
    ),
    // Files and devices, and the sockets on which they are served.
    row(
        &[Opener],
        Need::Opener,
        &[
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_access),
            any(libc::SYS_bind),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_chmod),
            any(libc::SYS_connect),
            any(libc::SYS_epoll_create1),
            any(libc::SYS_epoll_ctl),
            any(libc::SYS_eventfd2),
            any(libc::SYS_faccessat),
            any(libc::SYS_faccessat2),
            any(libc::SYS_fallocate),
            any(libc::SYS_fchmod),
            any(libc::SYS_fchmodat),
            any(libc::SYS_fchownat),
            any(libc::SYS_fcntl),
            any(libc::SYS_fdatasync),
            any(libc::SYS_flock),
            any(libc::SYS_fstat),
            any(libc::SYS_fstatfs),
            any(libc::SYS_fsync),
            any(libc::SYS_ftruncate),
            any(libc::SYS_getdents64),
            any(libc::SYS_geteuid),
            any(libc::SYS_getsockname),
            only(libc::SYS_ioctl, When::NoneOf(1, TYPING)),
            any(libc::SYS_listen),
            any(libc::SYS_lseek),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_lstat),
            any(libc::SYS_memfd_create),
            any(libc::SYS_newfstatat),
            any(libc::SYS_pread64),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_readlink),
            any(libc::SYS_readlinkat),
            only(libc::SYS_socket, When::Is(0, AF_UNIX)),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_stat),
            any(libc::SYS_statx),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_unlink),
            any(libc::SYS_unlinkat),
        ],
    ),
    // The list of disks, which is replaced as a whole.
    row(
        &[Keeper],
        Need::Opener,
        &[
            any(libc::SYS_fsync),
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_rename),
            any(libc::SYS_renameat),
            any(libc::SYS_renameat2),
        ],
    ),
    row(
        &[Opener],
        Need::IoUring,
        &[
            // It tries what the ring can do.
            any(libc::SYS_io_uring_enter),
            any(libc::SYS_io_uring_register),
            any(libc::SYS_io_uring_setup),
        ],
    ),
    row(&[Cluster], Need::Cluster, STARTING_THREADS),
    row(&[Cluster], Need::Cluster, NETWORK_CLIENT),
];

/// What is answered with an error, as by an older kernel or to a process without rights, because libraries
/// try it and can do without. It is in force in all threads, beside what each is allowed; of it, those of a cluster's
/// library, the one that opens disks and the one that keeps their list have only the first: which files these may open,
/// Landlock decides.
pub const REFUSED: &[(u32, &[Rule])] = &[
    // Its flags lie in memory, where no filter sees them: the C library tries `clone` then.
    (errno(libc::ENOSYS), &[any(libc::SYS_clone3)]),
    // The C library counts the processors; the standard library reads the program's symbols.
    (
        errno(libc::EACCES),
        &[
            #[cfg(target_arch = "x86_64")]
            any(libc::SYS_open),
            any(libc::SYS_openat),
        ],
    ),
];
