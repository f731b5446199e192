use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn what_nobody_answers_ends() {
    let (mut ours, _theirs) = UnixStream::pair().unwrap();
    let watched = ours.try_clone().unwrap();
    let shut_down = || watched.shutdown(Shutdown::Both).unwrap();
    let read = || ours.read(&mut [0; 1]).unwrap();
    let ended = bounded(Duration::from_millis(1), shut_down, read).unwrap();
    assert_eq!(ended, (0, Ended::TooLate));
}

#[test]
fn what_is_answered_leaves_the_socket_open() {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let ended = bounded(Duration::MAX, || unreachable!(), || 7).unwrap();
    assert_eq!(ended, (7, Ended::InTime));
    ours.write_all(b"x").unwrap();
    assert_eq!(theirs.read(&mut [0; 2]).unwrap(), 1);
}
