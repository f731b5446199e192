use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_first_attempt_is_made_at_once_and_the_last_when_time_is_over() {
    let begin = Instant::now();
    let mut absence = Absence::begin(begin, 3 * SECOND);
    let mut now = begin;
    let mut pauses = vec![];
    while let Some(pause) = absence.pause(now) {
        now += pause;
        pauses.push(pause.as_millis());
    }
    assert_eq!(pauses[..11], [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 500]);
    assert_eq!(now, begin + 3 * SECOND, "{pauses:?}");
    // Without any time at all there is one attempt.
    let mut absence = Absence::begin(begin, Duration::ZERO);
    assert_eq!(absence.pause(begin), Some(Duration::ZERO));
    assert_eq!(absence.pause(begin), None);
    let mut absence = Absence::begin(begin, Duration::MAX);
    assert!(absence.pause(begin + 1000 * SECOND).is_some());
}

#[test]
fn a_server_that_comes_back_and_ends_nothing_was_not_back() {
    let begin = Instant::now();
    let back = || {
        let mut absence = Absence::begin(begin, 3 * SECOND);
        absence.pause(begin);
        absence.end(begin + SECOND, 7);
        absence
    };
    for (gone, ended, is_waited_for, pause, left) in [
        (2 * SECOND, 7, true, FIRST, SECOND),
        // A request has ended.
        (2 * SECOND, 8, true, Duration::ZERO, 3 * SECOND),
        // What had ended is done again.
        (2 * SECOND, 6, true, FIRST, SECOND),
        // It has stayed.
        (4 * SECOND, 7, true, Duration::ZERO, 3 * SECOND),
        // No request waits for it.
        (2 * SECOND, 7, false, FIRST, 3 * SECOND),
        (2 * SECOND, 8, false, Duration::ZERO, 3 * SECOND),
    ] {
        let now = begin + gone;
        let progress = Progress {
            ended,
            is_waited_for,
        };
        let mut absence = back().goes_on(now, progress);
        let case = (gone, ended, is_waited_for);
        assert_eq!(
            (absence.pause(now), absence.left(now)),
            (Some(pause), left),
            "{case:?}"
        );
    }
}
