use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::io::Errno;

use super::entries::{Block, FIRST, find};
use super::*;
use crate::{Region, io, uring};

const LEN: u64 = 0x10_0000;

fn memory() -> (File, Region) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(LEN).unwrap();
    let region = Region::map(file.try_clone().unwrap(), 0, 0x1000, 0, LEN).unwrap();
    (file, region)
}

#[test]
fn memory_that_is_truncated_reads_as_zeroes_and_is_called_torn() {
    let (file, region) = memory();
    let (other_file, other) = memory();
    region.write(0, &vec![7; 0x10_0000]);
    other.write(0, &vec![8; 0x10_0000]);
    file.set_len(0x1000).unwrap();
    let mut bytes = vec![1; 0x3000];
    region.read(0, &mut bytes);
    // What was copied before the fault was there; what comes after it is zeroes.
    assert_eq!(bytes[0x1000..], [0; 0x2000]);
    assert!(region.is_torn());
    region.write(0, &vec![9; 0x10_0000]);
    region.read(0, &mut bytes);
    assert_eq!(bytes, [9; 0x3000], "it is memory like any other");

    assert!(!other.is_torn());
    let mut bytes = vec![0; 0x1000];
    other.read(0xf_f000, &mut bytes);
    assert_eq!(bytes, [8; 0x1000]);
    drop(other_file);
}

#[test]
fn a_write_into_memory_that_is_gone_is_survived() {
    let (file, region) = memory();
    file.set_len(0).unwrap();
    region.write(0, &vec![7; 0x10_0000]);
    assert!(region.is_torn());
    assert_eq!(
        file.metadata().unwrap().len(),
        0,
        "nothing reaches the file"
    );
}

#[test]
fn many_threads_may_find_it_gone_at_once() {
    for _ in 0..50 {
        let (file, region) = memory();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !region.is_torn() {
                        let mut bytes = vec![0; 0x10_0000];
                        region.read(0, &mut bytes);
                    }
                });
            }
            file.set_len(0).unwrap();
        });
    }
}

#[test]
fn the_alarm_ends_the_connection_and_says_why() {
    for late in [false, true] {
        let (file, region) = memory();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let alarm = Arc::new(Alarm::new(ours.into()));
        let touch = |region: &Region| region.write(0, &vec![7; 0x10_0000]);
        file.set_len(0).unwrap();
        if late {
            touch(&region);
        }
        let region = region.with_alarm(Arc::clone(&alarm));
        if !late {
            assert!(!alarm.is_rung());
            touch(&region);
        }
        assert!(alarm.is_rung());
        assert_eq!(
            theirs.read(&mut [0; 1]).unwrap(),
            0,
            "the end of the stream"
        );
    }
}

#[test]
#[should_panic(expected = "a region has one alarm")]
fn no_alarm_takes_the_place_of_one_that_may_be_ringing() {
    let (_file, region) = memory();
    let alarm = || Arc::new(Alarm::new(UnixStream::pair().unwrap().0.into()));
    let _ = region.with_alarm(alarm()).with_alarm(alarm());
}

#[test]
fn the_kernel_says_efault_and_tears_nothing() {
    let (memory, region) = memory();
    memory.set_len(0).unwrap();
    let disk = tempfile::tempfile_in("/dev/shm").unwrap();
    disk.set_len(LEN).unwrap();
    // SAFETY: the region is kept until the end of the test.
    let spans = [unsafe { region.slice(0, 4096) }.unwrap()];
    assert_eq!(io::read_at(&disk, &spans, 0), Err(Errno::FAULT));
    assert_eq!(io::write_at(&disk, &spans, 0), Err(Errno::FAULT));
    assert!(!region.is_torn());

    let Some(mut ring) = uring::tests::ring(&disk) else {
        return; // and it was said
    };
    for flow in [io::Flow::FromFile, io::Flow::ToFile] {
        // SAFETY: the list lives until the transfer has ended, below.
        let spans = unsafe { crate::Spans::new(&spans) };
        let transfer = uring::Transfer {
            flow,
            spans,
            skip: 0,
            at: 0,
            buffer: None,
        };
        ring.queue(7, &transfer);
        ring.submit().unwrap();
        let mut ended = Vec::new();
        while ring.in_flight() > 0 {
            ring.collect(&mut ended);
            std::thread::yield_now();
        }
        assert_eq!(ended[0].result, Err(Errno::FAULT), "{flow:?}");
    }
    assert!(!region.is_torn());
}

#[test]
fn a_region_that_is_gone_is_not_found_and_its_entry_is_used_again() {
    let (_file, region) = memory();
    let start = region.addresses().start;
    assert_eq!(find(start).unwrap().1.start, start);
    assert!(find(start + 0xf_ffff).is_some());
    drop(region);
    // Another test may have a region there by now.
    assert!(find(start).is_none_or(|(_, region)| region.len() == 0x10_0000));
    let many: Vec<_> = (0..3 * Block::ENTRIES)
        .map(|at| Guard::new(&(at * 16 + 1..at * 16 + 9), 1))
        .collect();
    for at in 0..3 * Block::ENTRIES {
        assert!(find(at * 16 + 8).is_some());
        assert!(find(at * 16 + 9).is_none());
    }
    drop(many);
    assert!(find(16 + 1).is_none());
    let blocks = std::iter::successors(Some(&FIRST), |block| block.next.get().copied()).count();
    for _ in 0..1000 {
        let (_file, _region) = memory();
    }
    let after = std::iter::successors(Some(&FIRST), |block| block.next.get().copied()).count();
    assert_eq!(blocks, after, "entries are used again");
}

/// In a process of its own, which is this test's program again: it has to die.
#[test]
fn a_fault_elsewhere_kills_as_ever() {
    const NAME: &str = "guard::tests::a_fault_elsewhere_kills_as_ever";
    if let Some(how) = std::env::var_os("POLLUX_GUARD_TEST") {
        let (_file, _region) = memory();
        if how == "sent" {
            // SAFETY: sends a signal.
            unsafe { libc::raise(libc::SIGBUS) };
            unreachable!("regions would be guarded no more");
        }
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(LEN).unwrap();
        let len = usize::try_from(LEN).unwrap();
        let access = rustix::mm::ProtFlags::READ;
        let flags = rustix::mm::MapFlags::SHARED;
        // SAFETY: a new mapping.
        let mapped =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, &file, 0) };
        file.set_len(0).unwrap();
        // SAFETY: mapped; that it cannot be read is what is tested.
        let byte = unsafe { mapped.unwrap().cast::<u8>().read_volatile() };
        unreachable!("read {byte}");
    }
    for how in ["fault", "sent"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env("POLLUX_GUARD_TEST", how)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{how}: {status:?}");
    }
}

/// The kernel tells of memory that has failed before anything touches it, as it does where
/// `vm.memory_failure_early_kill` is set. In a process of its own, as elsewhere it kills.
#[test]
fn memory_that_has_failed_untouched_is_no_fault_yet() {
    const NAME: &str = "guard::tests::memory_that_has_failed_untouched_is_no_fault_yet";
    if let Some(whose) = std::env::var_os("POLLUX_GUARD_TEST") {
        let (file, region) = memory();
        let own = [0u8; 1];
        let address = if whose == "ours" {
            own.as_ptr().addr()
        } else {
            region.addresses().start
        };
        tell_of_failure(address);
        assert!(!region.is_torn());
        file.set_len(0).unwrap();
        region.write(0, &[7; 1]);
        assert!(region.is_torn());
        return;
    }
    for (whose, signal) in [("peer's", None), ("ours", Some(libc::SIGBUS))] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env("POLLUX_GUARD_TEST", whose)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), signal, "{whose}: {status:?}");
        assert_eq!(status.success(), signal.is_none(), "{whose}: {status:?}");
    }
}

/// What the kernel sends to this thread then.
fn tell_of_failure(address: usize) {
    // `si_signo`, `si_errno`, `si_code` and padding, then `si_addr`.
    let mut info = [0usize; 16];
    info[0] = usize::try_from(libc::SIGBUS).unwrap();
    info[1] = usize::try_from(libc::BUS_MCEERR_AO).unwrap();
    info[2] = address;
    let (process, thread) = (
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero(),
    );
    let call = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: a whole `siginfo_t`, and a thread that exists.
    let sent = unsafe { libc::syscall(call, process, thread, libc::SIGBUS, &raw const info) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}
