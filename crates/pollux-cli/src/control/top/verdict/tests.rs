use super::*;

fn worker(working: f64, polling: f64, cpu: f64) -> WorkerTime {
    WorkerTime {
        number: 0,
        working,
        polling,
        cpu: Some(cpu),
    }
}

fn queue(requests: u64) -> QueueTime {
    QueueTime {
        requests,
        batch: Some(1.5),
        ..QueueTime::default()
    }
}

const ASLEEP: f64 = 0.05;

#[test]
fn what_holds_it_up_for_the_largest_share_of_the_time_is_the_bottleneck() {
    let limits = [("iops-total".to_owned(), 5000)];
    let with = |change: fn(&mut QueueTime)| {
        let mut queue = queue(1000);
        change(&mut queue);
        queue
    };
    for (queue, worker, which, words) in [
        (
            queue(0),
            worker(ASLEEP, 0.0, ASLEEP),
            Bottleneck::Idle,
            "no requests",
        ),
        (
            queue(1000),
            worker(0.2, 0.5, 0.7),
            Bottleneck::Guest,
            "80% of the time the worker saw no request: the guest sends 1.5 at once",
        ),
        (
            with(|queue| queue.kicks = 900),
            worker(0.2, 0.0, 0.2),
            Bottleneck::Guest,
            "1.5 at once, and most wake up their worker first",
        ),
        (
            queue(1000),
            worker(0.97, 0.03, 1.0),
            Bottleneck::Worker,
            "worker 0 was busy 97% of the time",
        ),
        (
            queue(1000),
            worker(0.97, 0.03, 0.5),
            Bottleneck::Worker,
            "but had its processor for 50% only",
        ),
        (
            with(|queue| (queue.disk, queue.in_flight) = (0.7, 12)),
            worker(0.2, 0.3, 0.5),
            Bottleneck::Engine,
            "70% of the time its worker only waited for the disk; 12 in flight now",
        ),
        // Requests are in flight, but the worker has no time to see what has ended.
        (
            with(|queue| (queue.disk, queue.in_flight) = (0.05, 64)),
            worker(0.95, 0.0, 0.95),
            Bottleneck::Worker,
            "worker 0 was busy",
        ),
        (
            with(|queue| queue.throttled = 0.9),
            worker(ASLEEP, 0.0, ASLEEP),
            Bottleneck::Limit,
            "90% of the time requests waited for the disk's limits: iops-total=5000",
        ),
        // A wait that is longer than the time between two samples.
        (
            with(|queue| (queue.requests, queue.throttled) = (0, 1.0)),
            worker(0.0, 0.0, 0.0),
            Bottleneck::Limit,
            "100% of the time",
        ),
        // A request that began a moment ago and has not ended.
        (
            with(|queue| (queue.requests, queue.in_flight, queue.disk) = (0, 1, 0.9)),
            worker(0.0, 0.0, 0.0),
            Bottleneck::Engine,
            "90% of the time its worker only waited for the disk; 1 in flight now",
        ),
        // A disk that does not answer.
        (
            with(|queue| {
                (queue.requests, queue.in_flight, queue.was_in_flight) = (0, 3, 3);
                queue.disk = 1.0;
            }),
            worker(0.0, 0.0, 0.0),
            Bottleneck::Engine,
            "of 3 requests in flight the disk has ended none",
        ),
    ] {
        let verdict = judge(&[queue], &[worker], &limits);
        assert_eq!(verdict.which, which, "{queue:?} {worker:?}: {verdict:?}");
        assert!(verdict.why.contains(words), "{words}: {verdict:?}");
        let shares = verdict.shares;
        let sum = shares.guest + shares.worker + shares.engine + shares.limit;
        let whole = if which == Bottleneck::Idle { 0.0 } else { 1.0 };
        assert!((sum - whole).abs() < 1e-9, "{shares:?}");
    }
}

#[test]
fn queues_count_by_their_requests_and_by_their_own_workers() {
    let busy = WorkerTime {
        number: 1,
        ..worker(1.0, 0.0, 1.0)
    };
    let workers = [worker(0.1, 0.0, 0.1), busy];
    let on = |number, requests| QueueTime {
        worker: number,
        ..queue(requests)
    };
    let which = |queues: &[QueueTime]| judge(queues, &workers, &[]).which;
    assert_eq!(which(&[on(0, 10), on(1, 90)]), Bottleneck::Worker);
    assert_eq!(which(&[on(0, 90), on(1, 10)]), Bottleneck::Guest);
    assert_eq!(which(&[on(0, 0), on(1, 1)]), Bottleneck::Worker);
    let both = judge(&[on(0, 50), on(1, 50)], &workers, &[]);
    assert!((both.shares.worker - 0.55).abs() < 1e-9, "{both:?}");
    assert!(both.why.starts_with("worker 1 was busy 100%"), "{both:?}");
}

#[test]
fn a_worker_that_is_not_known_is_not_blamed() {
    let verdict = judge(&[queue(5)], &[], &[]);
    assert_eq!(verdict.which, Bottleneck::Guest);
}
