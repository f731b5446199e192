use super::*;
use pollux_stats::Outcome;

fn ended(found_ns: u64, at: u64) -> Ended {
    Ended {
        found_ns,
        kind: Kind::Write,
        outcome: Outcome::IoErr,
        extent: Extent { at, bytes: 512 },
    }
}

/// A request that begins and ends.
fn serve(observer: &mut Observer, at: u64) {
    observer.found();
    let found = observer.found_ns();
    if found > 0 {
        observer.ended(ended(found, at));
    }
    observer.shown();
}

#[test]
fn nothing_is_noted_until_it_is_wanted_and_after() {
    let observation = Arc::new(Observation::of(2));
    let mut observer = Observer::new(Arc::clone(&observation), 1, 4);
    let count = || {
        let times = observation.latencies()?;
        Some(times.iter().map(|(_, times)| times.count()).sum::<u64>())
    };
    serve(&mut observer, 0);
    assert_eq!((count(), observer.found_ns()), (None, 0));
    observation.set_latencies(true);
    assert_eq!(count(), Some(0));
    serve(&mut observer, 0);
    observation.set_latencies(true);
    serve(&mut observer, 0);
    assert_eq!(count(), Some(2), "as it was, it goes on");
    observation.set_latencies(false);
    serve(&mut observer, 0);
    assert_eq!((count(), observer.found_ns()), (None, 0));
    observation.set_latencies(true);
    assert_eq!(count(), Some(0), "it begins anew");
}

#[test]
fn a_trace_keeps_the_last_requests_and_counts_the_others() {
    let observation = Arc::new(Observation::of(2));
    let mut observer = Observer::new(Arc::clone(&observation), 1, 4);
    let trace = observation.start_trace(Duration::from_secs(3600), 3);
    for at in 0..5 {
        serve(&mut observer, at * 512);
    }
    let records = trace.records();
    let seen: Vec<_> = records.iter().map(|it| (it.number, it.extent.at)).collect();
    assert_eq!(seen, [(2, 1024), (3, 1536), (4, 2048)]);
    let last = records[2];
    assert_eq!((last.queue, last.kind), (1, Kind::Write));
    assert_eq!((last.outcome, last.extent.bytes), (Outcome::IoErr, 512));
    assert!(records.is_sorted_by_key(|it| it.found));
    assert_eq!(
        (trace.traced(), trace.kept(), trace.is_over()),
        (5, 3, false)
    );
}

#[test]
fn a_trace_ends_with_its_time_and_takes_nothing_from_then_on() {
    let observation = Arc::new(Observation::of(1));
    let mut observer = Observer::new(Arc::clone(&observation), 0, 4);
    let trace = observation.start_trace(Duration::ZERO, 3);
    while !trace.is_over() {
        std::hint::spin_loop();
    }
    serve(&mut observer, 0);
    assert_eq!((observer.found_ns(), trace.traced()), (0, 0));
    observation.drop_trace();
    assert!(observation.trace().is_none());
}

#[test]
fn a_request_that_ends_after_it_was_switched_off_is_not_noted() {
    let observation = Arc::new(Observation::of(1));
    let mut observer = Observer::new(Arc::clone(&observation), 0, 4);
    let trace = observation.start_trace(Duration::from_secs(3600), 3);
    observer.found();
    observer.ended(ended(observer.found_ns(), 0));
    observation.drop_trace();
    observer.found();
    observer.shown();
    assert_eq!(trace.traced(), 0);
}

#[test]
fn a_request_that_was_found_before_a_trace_is_not_in_it() {
    let observation = Arc::new(Observation::of(1));
    let mut observer = Observer::new(Arc::clone(&observation), 0, 4);
    observation.set_latencies(true);
    observer.found();
    let before = ended(observer.found_ns(), 0);
    let trace = observation.start_trace(Duration::from_secs(3600), 3);
    observer.found();
    observer.ended(before);
    observer.ended(ended(observer.found_ns(), 1));
    observer.shown();
    let at: Vec<_> = trace.records().iter().map(|it| it.extent.at).collect();
    assert_eq!(at, [1]);
}

#[test]
fn records_are_whole_while_others_are_written() {
    let observation = Arc::new(Observation::of(4));
    let trace = observation.start_trace(Duration::from_secs(3600), 8);
    std::thread::scope(|scope| {
        for queue in 0..4 {
            let (observation, trace) = (Arc::clone(&observation), Arc::clone(&trace));
            scope.spawn(move || {
                let mut observer = Observer::new(observation, queue, 4);
                while trace.traced() < 20_000 {
                    serve(&mut observer, u64::from(queue) << 32);
                }
            });
        }
        while trace.traced() < 20_000 {
            for record in trace.records() {
                assert_eq!(record.extent.at, u64::from(record.queue) << 32);
            }
        }
    });
    assert_eq!((trace.records().len(), trace.kept()), (8, 8));
}

#[test]
fn a_trace_that_was_thrown_away_is_not_given_back_by_a_queue() {
    let observation = Arc::new(Observation::of(1));
    let mut observer = Observer::new(Arc::clone(&observation), 0, 4);
    let trace = Arc::downgrade(&observation.start_trace(Duration::from_secs(3600), 3));
    serve(&mut observer, 0);
    observation.drop_trace();
    serve(&mut observer, 0);
    assert!(trace.upgrade().is_some(), "the queue let go of the last");
    assert!(observation.trace().is_none());
    assert!(trace.upgrade().is_none());
}
