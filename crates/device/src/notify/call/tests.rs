use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// An alarm and the peer of the connection that it ends.
fn alarm() -> (Arc<Alarm>, UnixStream) {
    watchdog::start().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(Alarm::new(ours.into())), theirs)
}

/// An eventfd that takes no more.
fn saturated() -> OwnedFd {
    let fd = eventfd(0, EventfdFlags::empty()).unwrap();
    rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    fd
}

#[test]
fn a_full_pipe_does_not_hold_the_caller() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let theirs = writer.try_clone().unwrap();
    let (alarm, _peer) = alarm();
    let call = Call::new(File::from(writer), &alarm).unwrap();
    // The frontend would have it wait.
    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
    // More than any pipe holds.
    for _ in 0..200_000 {
        call.call();
    }
    assert_eq!(alarm.rung(), None);
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 1);
}

#[test]
fn a_saturated_eventfd_is_as_good_as_called() {
    let theirs = saturated();
    let (alarm, _peer) = alarm();
    let call = Call::new(File::from(theirs.try_clone().unwrap()), &alarm).unwrap();
    for _ in 0..1000 {
        call.call();
    }
    assert_eq!(alarm.rung(), None);
}

#[test]
fn a_saturated_eventfd_that_blocks_again_ends_the_session_and_holds_nobody() {
    let theirs = saturated();
    let (alarm, _peer) = alarm();
    let call = Call::new(File::from(theirs.try_clone().unwrap()), &alarm).unwrap();
    thread::scope(|scope| {
        // Several of the frontend's threads clear the flag, and fill what another thread has drained.
        for _ in 0..2 {
            scope.spawn(|| {
                while alarm.rung().is_none() {
                    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while alarm.rung().is_none() {
                    call.call();
                }
            });
        }
    });
    assert_eq!(alarm.rung(), Some(Misdeed::DescriptorBlocks));
    for _ in 0..1000 {
        call.call();
    }
}

#[test]
fn a_full_socket_holds_nobody_whatever_its_flags() {
    let (reader, writer) = UnixStream::pair().unwrap();
    let (alarm, _peer) = alarm();
    let call = Call::new(File::from(OwnedFd::from(writer)), &alarm).unwrap();
    // More than any socket holds.
    for _ in 0..100_000 {
        call.call();
    }
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&reader, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 1);
    drop(reader);
    call.call();
    assert_eq!(alarm.rung(), None);
}
