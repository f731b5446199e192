//! Requests that are done in slices.

mod forgotten;
mod turns;

use std::fs::File;
use std::time::Duration;

use pollux_disk::Effort;
use rustix::event::{EventfdFlags, eventfd};

use super::resume::Kept;
use super::*;
use crate::queue::budget::STEP;
use crate::session::config::SEG_MAX;
use crate::tuning::Tuning;
use crate::worker::{SessionId, SessionQueues};

const MIB: u64 = 1 << 20;
/// No turn does more, of how many large requests ever.
const MOST: u64 = 4 * SLICE;

/// A rig with 16 MiB of memory, on a disk as large, whose driver has accepted no limits.
fn rig() -> Rig {
    let mut rig = Rig::in_memory_of(16 * MIB, 256, Geometry::plain(16 * MIB), true);
    rig.queue.setup.rules.size_max = None;
    rig.queue.setup.rules.seg_max = SEG_MAX;
    rig
}

fn zeroes(len: u64) -> Vec<u8> {
    vec![0; usize::try_from(len).unwrap()]
}

fn header(rig: &mut Rig, kind: Kind, sector: u64) -> Buffer {
    rig.buffer(&RequestHeader { kind, sector }.to_bytes())
}

/// Makes a request available; the place of its status.
fn offer(rig: &mut Rig, kind: Kind, sector: u64, data: &[Buffer]) -> Buffer {
    let (header, status) = (header(rig, kind, sector), rig.buffer(&[0xff]));
    let (readable, writable) = if kind == Kind::In {
        (vec![header], [data, &[status]].concat())
    } else {
        ([&[header], data].concat(), vec![status])
    };
    rig.driver.stage(&readable, &writable, 7).unwrap();
    let _ = rig.driver.publish();
    status
}

fn turn(rig: &mut Rig) -> Budget {
    let mut budget = Budget::default();
    let _ = rig.queue.take(0, &mut budget, &mut *rig.channel);
    rig.queue.publish();
    budget
}

/// Turns until the request is back, each of which gets on; how many that took.
fn run(rig: &mut Rig) -> u64 {
    for turns in 1.. {
        let budget = turn(rig);
        if rig.driver.look().unwrap() > 0 {
            let _ = rig.driver.take().unwrap().unwrap();
            return turns;
        }
        assert!(budget.slices > 0);
        assert_eq!(rig.queue.arm(), Armed::Pending, "nobody sleeps over it");
    }
    unreachable!()
}

/// Buffers of odd lengths, which hold `bytes`.
fn scattered(rig: &mut Rig, mut bytes: &[u8]) -> Vec<Buffer> {
    let mut buffers = Vec::new();
    for len in [1, 511, 70_001, 3, 200_000].into_iter().cycle() {
        let (here, rest) = bytes.split_at(bytes.len().min(len));
        if here.is_empty() {
            break;
        }
        buffers.push(rig.buffer(here));
        bytes = rest;
    }
    buffers
}

#[test]
fn a_request_in_slices_moves_the_same_bytes() {
    for len in [SLICE, SLICE + SECTOR, MIB, 2 * MIB + 5 * SECTOR] {
        let mut rig = rig();
        let bytes = pattern(len / SECTOR);
        let data = scattered(&mut rig, &bytes);
        let status = offer(&mut rig, Kind::Out, 3, &data);
        let turns = run(&mut rig);
        assert_eq!(rig.bytes(status), [OK]);
        assert!(turns >= len / MOST, "{turns} turns for {len} bytes");
        let blank = vec![0xee; bytes.len()];
        let data = scattered(&mut rig, &blank);
        let status = offer(&mut rig, Kind::In, 3, &data);
        run(&mut rig);
        assert_eq!(rig.bytes(status), [OK]);
        let read: Vec<_> = data.iter().flat_map(|part| rig.bytes(*part)).collect();
        assert!(read == bytes, "{len} bytes");
        let counted = rig.queue.stats().snapshot();
        assert_eq!((counted.bytes_read, counted.bytes_written), (len, len));
        assert_eq!(counted.requests.read.ok, 1);
        rig.queue.drain();
        assert_eq!(rig.queue.drained(), Some(2), "nothing of them is left");
    }
}

#[test]
fn a_small_request_does_not_wait_for_the_end_of_large_ones_of_its_queue() {
    let mut rig = rig();
    let data = rig.buffer(&zeroes(MIB));
    for _ in 0..16 {
        offer(&mut rig, Kind::Out, 0, &[data]);
    }
    turn(&mut rig);
    let _ = rig.driver.look().unwrap();
    let small = rig.buffer(&[1; 512]);
    let status = offer(&mut rig, Kind::Out, 0, &[small]);
    let budget = turn(&mut rig);
    assert_eq!(rig.bytes(status), [OK]);
    assert!(budget.slices > 0, "nor do these stand still");
}

#[test]
fn to_find_slices_in_flight_is_work() {
    let mut rig = rig();
    let mut slow = Slow::default();
    let data = rig.buffer(&zeroes(MIB));
    for _ in 0..3 {
        offer(&mut rig, Kind::Out, 0, &[data]);
    }
    let mut turn = || {
        let mut budget = Budget::default();
        let _ = rig.queue.take(0, &mut budget, &mut slow);
        budget
    };
    assert_eq!(turn().slices, 3);
    assert_eq!(turn().spent(), 3 * STEP);
}

/// The slices that a slow disk was given since the last time.
fn given(slow: &mut Slow) -> Vec<Request> {
    std::mem::take(&mut slow.0)
}

#[test]
fn one_slice_is_in_flight_and_the_first_that_fails_is_the_last() {
    for fails in 0..4 {
        let mut rig = rig();
        let data = rig.buffer(&zeroes(4 * SLICE));
        let status = offer(&mut rig, Kind::In, 0, &[data]);
        let mut slow = Slow::default();
        let take = |rig: &mut Rig, slow: &mut Slow| {
            let _ = rig.queue.take(0, &mut Budget::default(), slow);
        };
        for at in 0..=fails {
            take(&mut rig, &mut slow);
            take(&mut rig, &mut slow);
            let [Request { ticket, op }] = given(&mut slow)[..] else {
                panic!("one slice at a time");
            };
            assert!(matches!(op, Op::Read { at: from, .. } if from == at * SLICE));
            assert!(!rig.queue.has_slices(), "a completion comes first");
            assert!(
                !rig.queue.becomes_idle(),
                "a queue with work left is no idle one"
            );
            rig.queue.drain();
            assert_eq!(rig.queue.drained(), None, "it has not ended");
            let failed = Err(Failure::OutOfRange);
            let result = if at == fails { failed } else { Ok(()) };
            rig.queue.complete(Queue::of_ticket(ticket).1, result);
            assert_eq!(rig.queue.arm(), Armed::Pending, "there is a sequel");
        }
        take(&mut rig, &mut slow);
        assert!(given(&mut slow).is_empty());
        rig.queue.publish();
        assert_eq!(rig.bytes(status), [IOERR]);
        assert_eq!(rig.queue.drained(), Some(1));
        assert_eq!(rig.queue.stats().snapshot().requests.read.ioerr, 1);
    }
}

#[test]
fn a_stable_request_in_slices_is_flushed_once_at_its_end() {
    for (kind, stable) in [
        (Kind::Out, true),
        (Kind::WriteZeroes, true),
        (Kind::Out, false),
        (Kind::Discard, true),
    ] {
        let mut rig = rig();
        rig.queue.setup.flush = !stable;
        let data = if kind == Kind::Out {
            rig.buffer(&zeroes(2 * SLICE))
        } else {
            let sectors = u32::try_from(2 * SLICE / SECTOR).unwrap();
            rig.buffer(&ranges(&[(0, sectors, false)]))
        };
        let status = offer(&mut rig, kind, 0, &[data]);
        let (mut slow, mut flushes, mut slices) = (Slow::default(), 0, 0);
        while rig.bytes(status) == [0xff] {
            let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
            for Request { ticket, op } in given(&mut slow) {
                match op {
                    Op::Flush => flushes += 1,
                    Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                        assert_eq!(durability, Durability::Volatile);
                        assert_eq!(flushes, 0, "the flush comes last");
                        slices += 1;
                    }
                    _ => slices += 1,
                }
                rig.queue.complete(Queue::of_ticket(ticket).1, Ok(()));
            }
        }
        let expected = u32::from(stable && kind != Kind::Discard);
        assert_eq!((slices, flushes), (2, expected), "{kind:?}");
    }
}

#[test]
fn a_disk_whose_work_is_done_elsewhere_gets_requests_as_they_are() {
    let (small, large) = (MIB, 3 * MIB);
    for (effort, bytes, expected) in [
        (Effort::Nothing, large, vec![large]),
        (Effort::HandOver, small, vec![small]),
        (Effort::HandOver, large, vec![MIB]),
        (Effort::Kernel, small, vec![small]),
        (Effort::Kernel, large, vec![MIB]),
        (Effort::Copy, small, vec![2 * SLICE]),
        (Effort::Everything, small, vec![SLICE]),
    ] {
        let mut rig = rig();
        rig.queue.setup.rules.pace = Pace::of(effort);
        let data = rig.buffer(&zeroes(bytes));
        offer(&mut rig, Kind::Out, 0, &[data]);
        let mut slow = Slow::default();
        let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
        let queued = given(&mut slow);
        let lens = queued.iter().map(|request| match request.op {
            Op::Write { from, .. } => from.bytes(),
            _ => panic!("a write"),
        });
        assert_eq!(lens.collect::<Vec<_>>(), expected, "{effort:?}");
    }
}

#[test]
fn limits_hold_whatever_the_driver_has_accepted() {
    const GIB: u64 = 1 << 30;
    let segments = |count: u32, len| vec![len; count as usize];
    for (lens, expected) in [
        (segments(SEG_MAX, 512), OK),
        (segments(SEG_MAX + 1, 512), IOERR),
        (vec![8 * MIB], OK),
        (vec![GIB, 512], IOERR),
        (vec![GIB - 512, 1024], IOERR),
    ] {
        let mut rig = Rig::in_memory_of(2 * GIB, 256, Geometry::plain(2 * GIB), true);
        rig.queue.setup.rules.size_max = None;
        rig.queue.setup.rules.seg_max = SEG_MAX;
        let data: Vec<_> = lens
            .iter()
            .map(|&len| Buffer {
                address: BUFFERS,
                len: u32::try_from(len).unwrap(),
            })
            .collect();
        // Behind all that is read.
        rig.next = GIB + 16 * MIB;
        let status = offer(&mut rig, Kind::In, 0, &data);
        run(&mut rig);
        assert_eq!(rig.bytes(status), [expected], "{} segments", lens.len());
    }
}

#[test]
fn what_was_begun_in_slices_is_done_again_from_its_start() {
    let mut rig = Rig::in_memory_of(16 * MIB, 64, Geometry::plain(16 * MIB), true);
    rig.rules.size_max = None;
    let mut kept = Kept::of(rig);
    let bytes = pattern(MIB / SECTOR);
    let data = kept.rig.buffer(&bytes);
    let statuses = [0, 0x800].map(|sector| offer(&mut kept.rig, Kind::Out, sector, &[data]));
    assert!(turn(&mut kept.rig).slices > 0);
    assert_eq!(kept.rig.driver.look(), Ok(0), "it has not ended");
    kept.restart(0);
    for status in statuses {
        assert_eq!(kept.rig.bytes(status), [0xff]);
        run(&mut kept.rig);
        assert_eq!(kept.rig.bytes(status), [OK], "in their order");
    }
    let blank = kept.rig.buffer(&vec![0; 2 * bytes.len()]);
    offer(&mut kept.rig, Kind::In, 0, &[blank]);
    run(&mut kept.rig);
    assert!(kept.rig.bytes(blank) == [&bytes[..], &bytes].concat());
    kept.restart(0);
    assert_eq!(turn(&mut kept.rig).chains, BUDGET, "nothing is left to do");
}

#[test]
fn a_call_waits_no_longer_for_a_large_request_beside_others_that_leave_little_of_each_turn() {
    let mut rig = rig();
    let calls = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let call = File::from(calls.try_clone().unwrap());
    let call = Call::new(call).unwrap();
    rig.queue.set_call(Some(call));
    rig.queue.calls = Calls::WhenQuiet;
    rig.queue.deferral = Deferral::waiting();
    let data = rig.buffer(&zeroes(SECTOR));
    offer(&mut rig, Kind::In, 0, &[data]);
    assert_eq!(rig.driver.arm(), Ok(Armed::Idle));
    turn(&mut rig);
    assert!(rig.queue.deferral.defers());
    let data = rig.buffer(&zeroes(MIB));
    offer(&mut rig, Kind::In, 0, &[data]);
    let mut slow = Slow::default();
    assert_eq!(rig.queue.take(0, &mut Budget::default(), &mut slow), 1);
    // Each turn of another queue is as much work as leaves a slice.
    let begin = Instant::now();
    while rig.queue.deferral.defers() && begin.elapsed() < Duration::from_secs(10) {
        let mut budget = Budget::default();
        budget.spend(2 * SLICE);
        assert_eq!(rig.queue.take(0, &mut budget, &mut slow), 0);
        rig.queue.publish();
    }
    assert!(
        !rig.queue.deferral.defers(),
        "a driver that sleeps is not called"
    );
}

#[test]
fn a_small_request_does_not_wait_for_the_end_of_large_ones_beside_a_queue_that_leaves_a_slice_of_each_turn()
 {
    let (mut busy, mut mixed) = (rig(), rig());
    let disk = pollux_disk::Memory::new(Geometry::plain(16 * MIB)).unwrap();
    let sleeper = Sleeper::new().unwrap();
    let mut session = SessionQueues::new(SessionId(0), disk.open_channel(sleeper.point()).unwrap());
    let data = busy.buffer(&zeroes(SLICE));
    let two = |busy: &mut Rig| {
        busy.next = 8 * MIB;
        (0..2).for_each(|_| {
            offer(busy, Kind::In, 0, &[data]);
        });
    };
    two(&mut busy);
    let data = mixed.buffer(&zeroes(MIB));
    for _ in 0..64 {
        offer(&mut mixed, Kind::In, 0, &[data]);
    }
    for (index, rig) in (0..).zip([&mut busy, &mut mixed]) {
        let stand_in = setup(
            DeviceEnd::new(&rig.areas, RingIndex(0), Suppression::EventIdx, true),
            &rig.table,
            &rig.rules,
            true,
        );
        let mut queue = std::mem::replace(&mut rig.queue, Queue::new(stand_in, Tuning::default()));
        queue.setup.index = index;
        session.start(Box::new(queue));
    }
    let mut turn = || {
        let _ = session.turn(Tuning::default());
        if busy.driver.look().unwrap() > 0 {
            while busy.driver.take().unwrap().is_some() {}
            two(&mut busy);
        }
    };
    // All of the large ones are taken, and go on.
    (0..100).for_each(|_| turn());
    let small = mixed.buffer(&[1; 512]);
    let status = offer(&mut mixed, Kind::Out, 0, &[small]);
    let mut turns = 0;
    while mixed.bytes(status) != [OK] {
        turns += 1;
        turn();
    }
    assert!(turns <= 3, "{turns} turns");
}
