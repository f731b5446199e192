//! What the threads of a cluster's client library do, which is not ours and starts them as it likes: what any client of
//! a network does. They read files, and write none; they connect to addresses, and take no connections; they start
//! threads, and no programs.

use crate::calls::{Rule, TYPING, When, any, only};

// As the filter sees them: unsigned.
const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
/// The C library asks it for the addresses of this machine.
const AF_NETLINK: u32 = 16;
/// `O_WRONLY | O_RDWR | O_CREAT`
const WRITES: u32 = 0o103;
const THIS_PROCESS: u32 = 0;

pub const NETWORK_CLIENT: &[Rule] = &[
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_access),
    any(libc::SYS_connect),
    any(libc::SYS_dup),
    any(libc::SYS_epoll_create1),
    any(libc::SYS_epoll_ctl),
    any(libc::SYS_epoll_pwait),
    any(libc::SYS_eventfd2),
    any(libc::SYS_faccessat),
    any(libc::SYS_faccessat2),
    any(libc::SYS_fcntl),
    any(libc::SYS_fstat),
    any(libc::SYS_fstatfs),
    any(libc::SYS_getcpu),
    any(libc::SYS_getdents64),
    any(libc::SYS_getegid),
    any(libc::SYS_geteuid),
    any(libc::SYS_getgid),
    any(libc::SYS_getpeername),
    any(libc::SYS_getrusage),
    any(libc::SYS_getsockname),
    any(libc::SYS_getsockopt),
    any(libc::SYS_getuid),
    any(libc::SYS_gettimeofday),
    only(libc::SYS_ioctl, When::NoneOf(1, TYPING)),
    any(libc::SYS_lseek),
    any(libc::SYS_membarrier),
    any(libc::SYS_newfstatat),
    #[cfg(target_arch = "x86_64")]
    only(libc::SYS_open, When::Lacks(1, WRITES)),
    only(libc::SYS_openat, When::Lacks(2, WRITES)),
    any(libc::SYS_pipe2),
    any(libc::SYS_ppoll),
    any(libc::SYS_prctl),
    any(libc::SYS_pread64),
    only(libc::SYS_prlimit64, When::Is(0, THIS_PROCESS)),
    any(libc::SYS_readlinkat),
    any(libc::SYS_readv),
    any(libc::SYS_recvfrom),
    any(libc::SYS_recvmsg),
    any(libc::SYS_sched_getparam),
    any(libc::SYS_sched_getscheduler),
    any(libc::SYS_sendmmsg),
    any(libc::SYS_sendmsg),
    any(libc::SYS_sendto),
    any(libc::SYS_setsockopt),
    only(libc::SYS_socket, When::Is(0, AF_INET)),
    only(libc::SYS_socket, When::Is(0, AF_INET6)),
    only(libc::SYS_socket, When::Is(0, AF_NETLINK)),
    only(libc::SYS_socket, When::Is(0, AF_UNIX)),
    only(libc::SYS_socketpair, When::Is(0, AF_UNIX)),
    any(libc::SYS_statfs),
    any(libc::SYS_statx),
    any(libc::SYS_sysinfo),
    any(libc::SYS_timerfd_create),
    any(libc::SYS_timerfd_settime),
    any(libc::SYS_uname),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_epoll_create),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_epoll_wait),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_pipe),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_select),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_stat),
];
