use super::*;

#[test]
fn one_that_cannot_sleep_gives_way_all_the_same() {
    let (commands, receiver) = crossbeam_channel::unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    // There is always something to do.
    commands.send(Command::End).unwrap();
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
