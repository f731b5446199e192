use super::*;

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn message(request: u32, flags: u32, size: u32) -> Vec<u8> {
    [request, flags, size]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect()
}

#[test]
fn a_change_is_heard_and_answered_where_that_is_wanted() {
    let (ours, mut theirs) = pair();
    assert_eq!(take(&ours, true).unwrap(), BackendRequest::Nothing);
    theirs.write_all(&message(2, 1, 0)).unwrap();
    theirs.write_all(&message(2, 1 | NEED_REPLY, 0)).unwrap();
    theirs.write_all(&message(77, 1 | NEED_REPLY, 0)).unwrap();
    assert_eq!(take(&ours, true).unwrap(), BackendRequest::ConfigChange);
    assert_eq!(take(&ours, true).unwrap(), BackendRequest::ConfigChange);
    assert_eq!(take(&ours, true).unwrap(), BackendRequest::Unknown(77));
    drop(ours);
    let mut answers = Vec::new();
    theirs.read_to_end(&mut answers).unwrap();
    let answer = |request, result: u64| {
        let mut bytes = message(request, 1 | REPLY, 8);
        bytes.extend(result.to_ne_bytes());
        bytes
    };
    assert_eq!(answers, [answer(2, 0), answer(77, 1)].concat());
}

#[test]
fn nobody_waits_for_an_answer_that_was_not_agreed_on() {
    let (ours, mut theirs) = pair();
    theirs.write_all(&message(2, 1 | NEED_REPLY, 0)).unwrap();
    assert_eq!(take(&ours, false).unwrap(), BackendRequest::ConfigChange);
    drop(ours);
    assert_eq!(theirs.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn nonsense_and_the_end_are_told() {
    for bytes in [
        &message(2, 1, 0)[..5],
        &message(2, 1, 8),
        &message(2, 0, 0),
        &message(2, 1 | REPLY, 0),
        &[],
    ] {
        let (ours, mut theirs) = pair();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        take(&ours, true).unwrap_err();
    }
}
