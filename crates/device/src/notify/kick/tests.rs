use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

use rustix::io::Errno;

use super::*;

#[test]
fn a_full_pipe_is_emptied_at_once() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let kick = KickFd::new(reader).unwrap();
    let room = fcntl_getpipe_size(&writer).unwrap();
    for _ in 0..3 {
        assert_eq!(rustix::io::write(&writer, &vec![1; room]), Ok(room));
        assert!(kick.heard());
    }
    assert!(!kick.heard());
    drop(writer);
    assert!(!kick.heard());
}

#[test]
fn an_eventfd_is_left_as_it_is_and_waited_for_by_nobody() {
    let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
    let kick = KickFd::new(theirs.try_clone().unwrap()).unwrap();
    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
    assert!(kick.heard());
    rustix::io::write(&theirs, &3u64.to_ne_bytes()).unwrap();
    assert!(kick.heard());
    let mut word = [0; 8];
    assert_eq!(rustix::io::read(&theirs, &mut word), Ok(8));
    assert_eq!(u64::from_ne_bytes(word), 3);
    rustix::io::write(&theirs, &3u64.to_ne_bytes()).unwrap();
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    assert!(kick.empty());
    assert_eq!(rustix::io::read(&theirs, &mut word), Err(Errno::AGAIN));
    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
    assert!(!kick.empty());
}

#[test]
fn a_pipe_is_known_again_whatever_its_descriptor() {
    let kick = |fd: &OwnedFd| KickFd::new(fd.try_clone().unwrap()).unwrap();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (other, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let event = eventfd(0, EventfdFlags::empty()).unwrap();
    assert!(kick(&reader).is_pipe_of(&kick(&reader)));
    assert!(kick(&reader).is_pipe_of(&kick(&writer)));
    assert!(!kick(&reader).is_pipe_of(&kick(&other)));
    assert!(!kick(&event).is_pipe_of(&kick(&event)));
}
