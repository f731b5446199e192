use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

#[test]
fn a_full_pipe_does_not_hold_the_caller() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let call = Call::new(File::from(writer)).unwrap();
    // More than any pipe holds.
    for _ in 0..200_000 {
        call.call();
    }
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 1);
}

/// Several threads call, as those of the frontend do what they can to hold them.
#[test]
fn a_saturated_eventfd_holds_nobody_whatever_its_flags() {
    let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
    let full = || {
        fcntl_setfl(&theirs, OFlags::NONBLOCK)
            .and_then(|()| rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()))
    };
    full().unwrap();
    let call = Call::new(File::from(theirs.try_clone().unwrap())).unwrap();
    thread::scope(|scope| {
        let calls = || {
            for _ in 0..10_000 {
                call.call();
            }
        };
        let callers = [(); 2].map(|()| scope.spawn(calls));
        while callers.iter().any(|caller| !caller.is_finished()) {
            let _ = full();
            fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        }
    });
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&theirs, &mut count), Ok(8));
    assert!(u64::from_ne_bytes(count) >= u64::MAX - 1);
    // It is as good as new.
    call.call();
    assert_eq!(rustix::io::read(&theirs, &mut count), Ok(8));
    assert_eq!(u64::from_ne_bytes(count), 1);
}

#[test]
fn a_full_socket_holds_nobody_whatever_its_flags() {
    let (reader, writer) = UnixStream::pair().unwrap();
    let call = Call::new(File::from(OwnedFd::from(writer))).unwrap();
    // More than any socket holds.
    for _ in 0..100_000 {
        call.call();
    }
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 1);
    drop(reader);
    call.call();
}
