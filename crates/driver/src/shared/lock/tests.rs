use super::*;

#[test]
fn what_was_recorded_before_is_left_out() {
    let times = |holds: &[u64], preempted| {
        let mut times = LockTimes {
            preempted,
            ..LockTimes::new()
        };
        for &hold in holds {
            record(&mut times.hold, Duration::from_nanos(hold));
            record(&mut times.wait, Duration::from_nanos(1));
        }
        times
    };
    let before = times(&[5, 900, 7], 2);
    let since = times(&[5, 900, 7, 5, 20], 3).since(&before);
    assert_eq!(
        (since.hold.len(), since.wait.len(), since.preempted),
        (2, 2, 1)
    );
    assert_eq!((since.hold.min(), since.hold.max()), (5, 20));
    assert_eq!(times(&[5], 0).since(&times(&[], 0)).hold.len(), 1);
}
