use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use super::*;

fn pair(patience: Duration) -> (Messages<'static>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Messages::new(ours, patience).unwrap(), theirs)
}

/// A header that promises eight bytes, and these.
const MESSAGE: [u8; 20] = [8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

#[test]
fn a_message_in_single_bytes_arrives_as_a_whole() {
    let (mut messages, mut theirs) = pair(PATIENCE);
    let sender = std::thread::spawn(move || {
        for byte in MESSAGE {
            theirs.write_all(&[byte]).unwrap();
        }
        theirs
    });
    assert!(messages.next(|| ()).unwrap());
    let mut message = [0; MESSAGE.len()];
    messages.stream.set_nonblocking(true).unwrap();
    messages.stream.read_exact(&mut message).unwrap();
    assert_eq!(message, MESSAGE);
    drop(sender.join().unwrap());
    assert!(messages.next(|| ()).unwrap());
}

#[test]
fn half_a_message_is_waited_for_only_so_long() {
    for half in [1, HEADER - 1, HEADER, MESSAGE.len() - 1] {
        let (mut messages, mut theirs) = pair(Duration::from_millis(1));
        theirs.write_all(&MESSAGE[..half]).unwrap();
        let error = messages.next(|| ()).unwrap_err().to_string();
        assert!(error.contains("half a message"), "{error}");
    }
}

#[test]
fn an_end_in_the_middle_of_a_message_is_reported() {
    let (mut messages, mut theirs) = pair(PATIENCE);
    theirs.write_all(&MESSAGE[..HEADER]).unwrap();
    drop(theirs);
    assert!(messages.next(|| ()).unwrap());
}

#[test]
fn a_body_that_is_too_long_is_not_waited_for() {
    let (mut messages, mut theirs) = pair(PATIENCE);
    let mut header = MESSAGE[..HEADER].to_vec();
    header[8..].copy_from_slice(&u32::MAX.to_le_bytes());
    theirs.write_all(&header).unwrap();
    assert!(messages.next(|| ()).unwrap());
}

#[test]
fn the_first_of_others_that_wait_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (mut messages, mut theirs) = pair(PATIENCE);
    messages.notice_others(listener.as_fd()).unwrap();
    let others = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
    let mut told = 0;
    messages
        .next(|| {
            told += 1;
            theirs.write_all(&MESSAGE).unwrap();
        })
        .unwrap();
    assert_eq!(told, 1);
    drop((theirs, others));
    messages.next(|| told += 1).unwrap();
    assert_eq!(told, 1);
}

/// Answers of which none is read, as many as there is room for.
fn fill(answers: &UnixStream) {
    answers.set_nonblocking(true).unwrap();
    while (&*answers).write(&[0; 4096]).is_ok() {}
    answers.set_nonblocking(false).unwrap();
}

#[test]
fn a_message_that_cannot_be_answered_is_none_once_this_end_is_to_stop() {
    let (mut messages, mut theirs) = pair(PATIENCE);
    theirs.write_all(&MESSAGE).unwrap();
    let stop = messages.stream.try_clone().unwrap();
    fill(&stop);
    let waits = std::thread::spawn(move || messages.next(|| ()));
    stop.shutdown(std::net::Shutdown::Read).unwrap();
    assert!(!waits.join().unwrap().unwrap());
}

#[test]
fn a_message_waits_until_its_answer_has_room() {
    let (mut messages, mut theirs) = pair(PATIENCE);
    theirs.write_all(&MESSAGE).unwrap();
    fill(&messages.stream);
    let waits = std::thread::spawn(move || {
        let answered = messages.next(|| ()).unwrap();
        (&messages.stream).write_all(&[1; 4096]).unwrap();
        (answered, messages)
    });
    let mut answers = vec![];
    let mut some = [0; 4096];
    while answers.last() != Some(&1) {
        let read = theirs.read(&mut some).unwrap();
        answers.extend_from_slice(&some[..read]);
    }
    assert!(waits.join().unwrap().0);
}
