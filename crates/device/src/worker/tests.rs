use super::*;

/// One that has always something to do.
fn sleepless() -> Worker {
    let (commands, receiver) = crossbeam_channel::unbounded();
    commands.send(Command::End).unwrap();
    Worker::new(receiver, Tuning::default()).unwrap()
}

#[test]
fn one_that_cannot_sleep_hears_kicks_all_the_same() {
    let mut worker = sleepless();
    for _ in 1..COMMANDS_EVERY {
        worker.rest();
    }
    assert!(worker.busy < HEARS_EVERY);
    worker.rest();
    assert!(worker.busy >= HEARS_EVERY);
    worker.turn();
    assert_eq!(worker.busy, 0);
}

#[test]
fn one_that_cannot_sleep_gives_way_all_the_same() {
    let mut worker = sleepless();
    for yields in 1..4 {
        for turn in 1..=Neighbours::YIELD_EVERY {
            worker.turns += 1;
            let before = worker.let_others;
            worker.rest();
            let gave_way = worker.let_others != before;
            assert_eq!(gave_way, turn == Neighbours::YIELD_EVERY, "{turn}");
        }
        assert_eq!(worker.let_others, yields * Neighbours::YIELD_EVERY);
    }
}
