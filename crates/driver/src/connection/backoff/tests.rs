use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn progress(ended: u64, is_waited_for: bool) -> Progress {
    Progress {
        ended,
        is_waited_for,
    }
}

#[test]
fn the_first_attempt_is_made_at_once_and_the_last_when_time_is_over() {
    let begin = Instant::now();
    let mut absence = Absence::begin(begin, 3 * SECOND, progress(7, true));
    let mut now = begin;
    let mut pauses = vec![];
    while let Some(pause) = absence.pause(now) {
        now += pause;
        pauses.push(pause.as_millis());
    }
    assert_eq!(pauses[..11], [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 500]);
    assert_eq!(now, begin + 3 * SECOND, "{pauses:?}");
    // Without any time at all there is one attempt.
    let mut absence = Absence::begin(begin, Duration::ZERO, progress(7, true));
    assert_eq!(absence.pause(begin), Some(Duration::ZERO));
    assert_eq!(absence.pause(begin), None);
    let mut absence = Absence::begin(begin, Duration::MAX, progress(7, true));
    assert!(absence.pause(begin + 1000 * SECOND).is_some());
}

#[test]
fn a_server_that_comes_back_and_ends_nothing_was_not_back() {
    let begin = Instant::now();
    let same = (FIRST, SECOND);
    let longer = (FIRST, 3 * SECOND);
    let new = (Duration::ZERO, 3 * SECOND);
    for (waited, gone, ended, waits, (pause, left)) in [
        (true, 2, 7, true, same),
        // What had ended is done again.
        (true, 2, 6, true, same),
        // A request has ended.
        (true, 2, 8, true, new),
        (true, 2, 8, false, new),
        // It has stayed.
        (true, 4, 7, true, new),
        // No request waits for it, or none did.
        (true, 2, 7, false, longer),
        (false, 2, 7, false, longer),
        (false, 2, 7, true, longer),
    ] {
        let mut absence = Absence::begin(begin, 3 * SECOND, progress(7, waited));
        absence.pause(begin);
        absence.end(begin + SECOND, 7);
        let now = begin + gone * SECOND;
        let mut absence = absence.goes_on(now, progress(ended, waits));
        let case = (waited, gone, ended, waits);
        assert_eq!(absence.pause(now), Some(pause), "{case:?}");
        assert_eq!(absence.left(now), left, "{case:?}");
        // What waits now is waited for once.
        absence.end(now, ended);
        let again = absence.goes_on(now + SECOND, progress(ended, true));
        assert_eq!(again.left(now + SECOND) < left, waits, "{case:?}");
    }
}
