//! Queues that their limits hold up: what waits stays in the ring, and nothing waits for it.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::resume::Kept;
use super::*;
use crate::limits::{Limited, Limits, Rate};

fn limit(rig: &Rig, what: Limited, per_second: u64) {
    let mut limits = Limits::default();
    let rate = Rate {
        per_second: NonZeroU64::new(per_second).unwrap(),
        burst: None,
    };
    limits.set(what, Some(rate));
    rig.queue.setup.limiter.set(limits);
}

fn offer(rig: &mut Rig, kind: Kind) {
    let header = rig.buffer(&RequestHeader { kind, sector: 0 }.to_bytes());
    let (data, status) = (rig.buffer(&[0; 512]), rig.buffer(&[0xff]));
    match kind {
        Kind::In => rig.driver.stage(&[header], &[data, status], 1),
        _ => rig.driver.stage(&[header, data], &[status], 1),
    }
    .unwrap();
    let _ = rig.driver.publish();
}

fn turn(rig: &mut Rig) -> u16 {
    let taken = rig.queue.take(0, &mut Budget::default(), &mut *rig.channel);
    rig.queue.publish();
    rig.driver.look().unwrap();
    while rig.driver.take().unwrap().is_some() {}
    taken
}

#[test]
fn what_has_to_wait_stays_in_the_ring_and_a_stop_does_not_wait_for_it() {
    let mut kept = Kept::new();
    limit(&kept.rig, Limited::BpsTotal, 1);
    for token in 0..3 {
        kept.offer(token, 7, token);
    }
    assert_eq!(kept.turn(), 1);
    assert_eq!((kept.turn(), kept.in_flight().len()), (0, 0));
    let queue = &mut kept.rig.queue;
    let waits = queue.throttled_for().unwrap();
    assert!(waits > Duration::from_secs(300), "{waits:?}");
    assert!(queue.only_waits_for_tokens());
    assert_eq!(queue.arm(), Armed::Idle);
    assert!(!queue.setup.ring.is_armed(), "no kick is needed");
    assert!(!queue.becomes_idle(), "its chains would be forgotten");
    let stats = Arc::clone(&queue.setup.stats);
    let waited = || stats.snapshot().throttled_ns;
    let first = waited();
    let began = Instant::now();
    while waited() == first {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "a wait that lasts is not counted"
        );
    }
    queue.drain();
    assert_eq!(
        queue.drained(),
        Some(1),
        "the next one goes on with the second"
    );
    assert_eq!(queue.throttled_for(), None);
    assert_eq!(queue.stats().snapshot().throttled, 1);
    assert!(!queue.stats().throttled_time.lasts());
}

#[test]
fn reads_that_wait_do_not_hold_up_a_driver_that_writes() {
    let mut rig = Rig::new();
    limit(&rig, Limited::IopsRead, 1);
    offer(&mut rig, Kind::In);
    assert_eq!(turn(&mut rig), 1);
    for _ in 0..4 {
        offer(&mut rig, Kind::Out);
    }
    assert_eq!(turn(&mut rig), 4);
    // Flushes are free.
    limit(&rig, Limited::IopsTotal, 1);
    offer(&mut rig, Kind::Out);
    assert_eq!(turn(&mut rig), 1);
    assert_eq!(rig.request(Kind::Flush, 0, &[], 0).0, OK);
}

#[test]
fn a_limit_that_is_lifted_lets_everything_through_at_once() {
    let mut rig = Rig::new();
    limit(&rig, Limited::BpsTotal, 1);
    for _ in 0..5 {
        offer(&mut rig, Kind::In);
    }
    assert_eq!((turn(&mut rig), turn(&mut rig)), (1, 0));
    rig.queue.setup.limiter.set(Limits::default());
    assert_eq!(turn(&mut rig), 4);
    assert_eq!(rig.queue.throttled_for(), None);
}

#[test]
fn tokens_come_with_time() {
    let mut rig = Rig::new();
    limit(&rig, Limited::IopsTotal, 1000);
    let (started, mut taken) = (Instant::now(), 0);
    // A fiftieth of a second's came at once; so many more take ten milliseconds at least.
    while taken < 30 {
        if rig.next > 0x8_0000 {
            rig.next = BUFFERS;
        }
        if taken == 0 || rig.queue.throttled_for().is_none() {
            offer(&mut rig, Kind::In);
        }
        taken += turn(&mut rig);
    }
    assert!(started.elapsed() >= Duration::from_millis(9));
}

#[test]
fn two_queues_under_one_limit_take_turns() {
    use crate::worker::{SessionId, SessionQueues};
    let mut rigs = [Rig::new(), Rig::new()];
    let limiter = Arc::clone(&rigs[0].queue.setup.limiter);
    limit(&rigs[0], Limited::IopsTotal, 1000);
    rigs[1].queue.setup.limiter = limiter;
    let disk = pollux_disk::Null::new(Geometry::plain(DISK));
    let sleeper = Sleeper::new().unwrap();
    let mut session = SessionQueues::new(SessionId(0), disk.open_channel(sleeper.point()).unwrap());
    let mut drivers = Vec::new();
    for (index, rig) in (0u16..).zip(&mut rigs) {
        let (headers, status) = (
            rig.buffer(
                &RequestHeader {
                    kind: Kind::In,
                    sector: 0,
                }
                .to_bytes(),
            ),
            [rig.buffer(&[0; 512]), rig.buffer(&[0xff])],
        );
        let Setup {
            ring,
            stats,
            limiter,
            ..
        } = {
            let ring = DeviceEnd::new(&rig.areas, RingIndex(0), Suppression::EventIdx, true);
            let other = setup(ring, &rig.table, &rig.rules, true);
            std::mem::replace(&mut rig.queue.setup, other)
        };
        let own = Setup {
            index,
            stats,
            limiter,
            ..setup(ring, &rig.table, &rig.rules, true)
        };
        session.start(Box::new(Queue::new(own, AT_ONCE)));
        let driver = DriverEnd::new(&rig.areas, Suppression::EventIdx, None);
        drivers.push((driver, headers, status, 0u32));
    }
    let started = Instant::now();
    // A machine that others use gives one of them a whole burst now and then, and none is left behind for that.
    while drivers.iter().any(|driver| driver.3 < 60) && drivers.iter().all(|driver| driver.3 < 600)
    {
        for (driver, header, status, back) in &mut drivers {
            driver.look().unwrap();
            while driver.take().unwrap().is_some() {
                *back += 1;
            }
            while driver.stage(&[*header], status, 0).is_ok() {}
            let _ = driver.publish();
        }
        session.turn(AT_ONCE);
    }
    let [one, other] = [drivers[0].3, drivers[1].3];
    let most = started.elapsed().as_millis() + 40;
    assert!(u128::from(one + other) <= most, "{one} and {other}");
    assert!(one.min(other) >= 60, "{one} and {other}");
}
