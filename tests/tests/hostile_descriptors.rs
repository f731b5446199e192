//! The table of file descriptors that a frontend sends: too many, too few, unasked, and of strange kinds.
//!
//! None is left behind, whatever becomes of the message: the harness counts.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use pollux_tests::frontend::{Code, GuestMemory, PAGE, Raw, Region, new_eventfd, pair};
use pollux_tests::hostile::{DISCONNECTED, EMPTY, INVALID, is_turned_away, refused};
use pollux_tests::row;
use rustix::event::epoll;
use rustix::pipe::{PipeFlags, pipe_with};

row!(descriptors_that_nobody_asked_for, |target| {
    let event = new_eventfd().unwrap();
    for code in EMPTY
        .into_iter()
        .filter(|code| *code != Code::SetBackendReqFd)
    {
        for count in [1, 2, 32] {
            let raw = Raw::new(code, vec![]).with(vec![event.as_fd(); count]);
            refused(target, INVALID, &raw);
        }
    }
    let raw = Raw::new(Code::SetVringNum, pair(0, 256)).with(vec![event.as_fd(); 3]);
    refused(target, INVALID, &raw);
});

row!(more_descriptors_than_any_message_has, |target| {
    let event = new_eventfd().unwrap();
    for count in [33, 34, 253] {
        for code in [Code::SetOwner, Code::SetMemTable] {
            let raw = Raw::new(code, vec![0; 40]).with(vec![event.as_fd(); count]);
            refused(target, "more than 32 file descriptors", &raw);
        }
    }
});

row!(two_descriptors_for_one, |target| {
    let event = new_eventfd().unwrap();
    for code in [Code::SetVringKick, Code::SetVringCall, Code::SetVringErr] {
        let raw = Raw::new(code, vec![0; 8]).with(vec![event.as_fd(); 2]);
        refused(target, INVALID, &raw);
    }
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let payload = [vec![0; 8], memory.region().bytes()].concat();
    let raw = Raw::new(Code::AddMemReg, payload).with(vec![memory.region().fd; 2]);
    refused(target, DISCONNECTED, &raw);
});

row!(a_descriptor_that_is_missing, |target| {
    for code in [Code::SetVringKick, Code::SetVringCall, Code::SetVringErr] {
        refused(target, INVALID, &Raw::new(code, vec![0; 8]));
    }
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let payload = [vec![0; 8], memory.region().bytes()].concat();
    refused(target, DISCONNECTED, &Raw::new(Code::AddMemReg, payload));
    let payload = [pair(1, 0), memory.region().bytes()].concat();
    refused(target, INVALID, &Raw::new(Code::SetMemTable, payload));
});

row!(
    a_descriptor_together_with_the_word_that_there_is_none,
    |target| {
        let event = new_eventfd().unwrap();
        for code in [Code::SetVringKick, Code::SetVringCall, Code::SetVringErr] {
            let payload = 0x100u64.to_le_bytes().to_vec();
            refused(
                target,
                INVALID,
                &Raw::new(code, payload).with(vec![event.as_fd()]),
            );
        }
    }
);

row!(descriptors_with_the_body_instead_of_the_header, |target| {
    let event = new_eventfd().unwrap();
    let driver = target.driver();
    let bytes = Raw::new(Code::SetVringKick, vec![0; 8]).bytes();
    driver.frontend.send_bytes(&bytes[..12], &[]).unwrap();
    let _ = driver.frontend.send_bytes(&bytes[12..], &[event.as_fd()]);
    is_turned_away(target, &driver.frontend, DISCONNECTED);
});

row!(descriptors_with_each_byte_of_a_header, |target| {
    let event = new_eventfd().unwrap();
    let driver = target.driver();
    for byte in Raw::new(Code::SetVringKick, vec![0; 8]).bytes() {
        let _ = driver.frontend.send_bytes(&[byte], &[event.as_fd()]);
    }
    is_turned_away(
        target,
        &driver.frontend,
        "with a part of a message's header",
    );
});

fn strange_descriptors() -> Vec<(&'static str, OwnedFd)> {
    // One of a pair may be called.
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its lock would hold the other disk as well.
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    vec![
        ("a pipe", reader),
        ("a pipe", writer),
        ("a file", tempfile::tempfile().unwrap().into()),
        ("a directory", File::open("/").unwrap().into()),
        ("a socket", socket.into()),
        ("a device", File::open("/dev/zero").unwrap().into()),
        (
            "something else",
            epoll::create(epoll::CreateFlags::empty()).unwrap(),
        ),
    ]
}

row!(strange_descriptors_for_kicks_calls_and_errors, |target| {
    for (kind, fd) in strange_descriptors() {
        for (code, what) in [
            (Code::SetVringKick, "kick"),
            (Code::SetVringCall, "call"),
            (Code::SetVringErr, "error"),
        ] {
            let raw = Raw::new(code, vec![0; 8]).with(vec![fd.as_fd()]);
            let why = format!("the {what} descriptor of queue 0 is {kind}");
            refused(target, &why, &raw);
        }
    }
});

row!(strange_descriptors_for_memory, |target| {
    let event = ("an eventfd", new_eventfd().unwrap());
    for (_, fd) in strange_descriptors().into_iter().chain([event]) {
        let region = Region {
            guest: 8 << 32,
            user: 8 << 32,
            len: PAGE as u64,
            fd: fd.as_fd(),
        };
        let payload = [vec![0; 8], region.bytes()].concat();
        let raw = Raw::new(Code::AddMemReg, payload).with(vec![fd.as_fd()]);
        // The kernel lets some of these be mapped; whatever it says, only this session is concerned.
        let driver = target.driver();
        driver.frontend.send_raw(&raw).unwrap();
        driver.frontend.stop_sending().unwrap();
        driver.frontend.until_closed().unwrap();
    }
});

row!(
    a_strange_descriptor_for_requests_of_the_back_end,
    |target| {
        for (_, fd) in strange_descriptors()
            .into_iter()
            .filter(|(kind, _)| *kind != "a socket")
        {
            let raw = Raw::new(Code::SetBackendReqFd, vec![]).with(vec![fd.as_fd()]);
            refused(target, DISCONNECTED, &raw);
        }
    }
);

// The flags of an eventfd belong to all who hold it.
row!(a_kick_that_waits_when_it_is_read, |target| {
    use rustix::fs::{OFlags, fcntl_setfl};
    let mut driver = target.driver();
    for byte in 0..100 {
        let queue = &mut driver.queues[0];
        fcntl_setfl(&queue.kick, OFlags::empty()).unwrap();
        rustix::io::write(&queue.kick, &1u64.to_ne_bytes()).unwrap();
        // Whoever reads second would wait.
        fcntl_setfl(&queue.kick, OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&queue.kick, &mut [0; 8]);
        fcntl_setfl(&queue.kick, OFlags::empty()).unwrap();
        queue.round(byte);
    }
});
