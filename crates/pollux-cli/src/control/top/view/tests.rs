use super::*;
use crate::control::top::verdict::judge;

fn disk(name: &str, iops: f64, depth: f64, p99_ns: Option<u64>) -> DiskRates {
    DiskRates {
        control: "/run/pollux/a.control".into(),
        name: name.to_owned(),
        seconds: 1.0,
        connected: true,
        latencies: p99_ns.is_some(),
        iops,
        read_bytes_per_second: 1e6 / iops,
        written_bytes_per_second: 0.0,
        errors_per_second: 0.0,
        p50_ns: None,
        p99_ns,
        depth,
        kicks_per_io: None,
        calls_per_io: None,
        sleeps_per_io: None,
        bottleneck: judge(&[], &[], &[]),
        ops: vec![],
        queues: vec![],
        disk: vec![],
        limits: vec![],
    }
}

fn three() -> Rates {
    Rates {
        disks: vec![
            disk("b", 10.0, 3.0, Some(7)),
            disk("a", 20.0, 1.0, None),
            disk("c", 30.0, 2.0, Some(9)),
        ],
        ..Rates::default()
    }
}

fn names(rates: &Rates) -> String {
    rates.disks.iter().map(|disk| &*disk.name).collect()
}

#[test]
fn disks_are_sorted_by_each_column_in_turn() {
    let (mut view, mut rates) = (View::default(), three());
    view.order(&mut rates);
    assert_eq!(names(&rates), "cab");
    for (sort, order) in [
        (Sort::Bandwidth, "bac"),
        (Sort::P99, "cba"),
        (Sort::Depth, "bca"),
        (Sort::Name, "abc"),
        (Sort::Iops, "cab"),
    ] {
        assert_eq!(view.key(KeyCode::Char('s'), &mut rates), Act::Draw);
        assert_eq!((view.sort, &*names(&rates)), (sort, order));
    }
}

#[test]
fn the_chosen_disk_stays_chosen_when_others_overtake_it() {
    let (mut view, none) = (View::default(), Rates::default());
    let mut rates = view.take(three(), &none);
    let _ = view.key(KeyCode::Down, &mut rates);
    assert_eq!(view.disk(&rates).unwrap().name, "a");
    let mut faster = three();
    faster.disks[0].iops = 99.0;
    let mut rates = view.take(faster, &rates);
    assert_eq!(view.disk(&rates).unwrap().name, "a");
    for _ in 0..9 {
        let _ = view.key(KeyCode::Down, &mut rates);
    }
    assert_eq!(view.disk(&rates).unwrap().name, "a", "it is the last one");
    let rates = view.take(none, &rates);
    assert!(view.disk(&rates).is_none());
}

#[test]
fn escape_leaves_the_detail_first() {
    let (mut view, mut rates) = (View::default(), three());
    assert_eq!(view.key(KeyCode::Enter, &mut rates), Act::Draw);
    assert!(view.detail);
    assert_eq!(view.key(KeyCode::Esc, &mut rates), Act::Draw);
    assert!(!view.detail);
    assert_eq!(view.key(KeyCode::Esc, &mut rates), Act::Quit);
    assert_eq!(
        view.key(KeyCode::Char('l'), &mut rates),
        Act::SwitchLatencies
    );
    let _ = view.key(KeyCode::Char('p'), &mut rates);
    assert!(view.paused);
}
