//! A program that embeds both ends has signals of its own, whose handlers end any system call of any thread early.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use driver_cases::{Case, patiently};
use pollux::device::{self, Device, Options, Tuning, Workers};
use pollux::disk::Spec;
use pollux::driver::{CompletionMode, ConnectError, Driver, Waiting};
use pollux_tests::drive::{Mode, SHARED_MODES};
use rustix::net::listen;

/// How many signals the handler has seen.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Has [`count`] handle SIGUSR1, without `SA_RESTART`: what it interrupts ends with `EINTR`.
fn handle() {
    // SAFETY: all zeroes are a `sigaction` without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    // SAFETY: the handler does nothing but add to an atomic.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Sends the signal to each thread of this process but the calling one.
fn signal_others() {
    let process = i32::try_from(std::process::id()).unwrap();
    let caller = rustix::thread::gettid().as_raw_nonzero().get();
    for thread in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let thread: i32 = thread.file_name().to_str().unwrap().parse().unwrap();
        if thread != caller {
            // SAFETY: a signal that has a handler, to a thread of ours; one that has ended meanwhile is an error.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
            // The others, and the kernel's threads, are to get somewhere as well.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

/// Serves a stripe of memory and of files in memory, for as long as the test runs. Such files need none of the kernel's
/// threads, which starve beside so many signals.
fn serve(folder: &Path) {
    let mut legs = vec!["memory:size=64M".to_owned()];
    for (name, options) in [
        ("usual", ""),
        ("through", ",cache=writethrough"),
        ("ring", ",engine=io_uring,inline=off"),
        ("threads", ",engine=threads"),
    ] {
        let path = folder.join(name);
        fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        legs.push(format!("[file:path={}{options}]", path.display()));
    }
    let spec = format!("striped:chunk=64K:{}", legs.join(","));
    let disk = spec.parse::<Spec>().unwrap();
    let disk = disk.open(&pollux::disk::Options::default()).unwrap();
    let device = Arc::new(Device::new(disk, Options::new("stripe").num_queues(4)));
    let workers = Arc::new(Workers::start(2, &[], Tuning::default()).unwrap());
    let listener = UnixListener::bind(folder.join("socket")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let others = Some(listener.as_fd());
            device::serve(stream.unwrap(), others, &device, &workers).unwrap();
        }
    });
}

/// A socket whose server accepts nobody, and what waits for it already.
fn full_backlog(path: &Path) -> (PathBuf, UnixListener, UnixStream) {
    let listener = UnixListener::bind(path).unwrap();
    listen(&listener, 0).unwrap();
    let first = UnixStream::connect(path).unwrap();
    (path.to_owned(), listener, first)
}

/// Does `what` while every other thread of this process gets one signal after the other.
fn under_signals(what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let test = scope.spawn(what);
        while !test.is_finished() {
            signal_others();
        }
        test.join().expect("its message is above");
    });
}

#[test]
fn signals_end_no_wait_and_no_request() {
    handle();
    let folder = tempfile::TempDir::new_in("/dev/shm").unwrap();
    serve(folder.path());
    let socket = folder.path().join("socket");
    patiently(move || {
        under_signals(|| {
            for _ in 0..20 {
                let disk = Driver::builder(&socket).connect().unwrap();
                let queue = disk.queue(0).unwrap();
                for mode in [CompletionMode::Polled, CompletionMode::Call] {
                    queue.read(0, vec![0; 4096], mode).wait().unwrap();
                }
                queue.flush(CompletionMode::Call).wait().unwrap();
            }
            let full = full_backlog(&folder.path().join("full"));
            let patience = pollux::driver::Options::default().patience(Duration::from_millis(300));
            let silent = Driver::connect(&full.0, &patience).unwrap_err();
            assert!(matches!(silent, ConnectError::Lost { .. }), "{silent}");
            let case = Case {
                modes: [
                    &SHARED_MODES[..],
                    &[Mode::Own(Waiting::Adaptive), Mode::Own(Waiting::Call)],
                ]
                .concat(),
                options: pollux::driver::Options::default().queues(4),
                ..Case::new(Duration::from_secs(3))
            };
            case.run(&socket);
        });
    });
    let signals = SIGNALS.load(Ordering::Relaxed);
    println!("{signals} signals");
    assert!(signals > 1000);
}
