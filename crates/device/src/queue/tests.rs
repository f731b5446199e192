//! Requests of every shape and kind, from our driver end through a queue to a real memory disk.

mod calls;
mod fair;
mod idle;
mod limit;
mod lost;
mod resume;
mod rig;
mod slices;

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_blk::{RangeSegment, RequestHeader, SECTOR};
use pollux_disk::wait::Sleeper;
use pollux_disk::wait::Window;
use pollux_disk::{
    Access, Channel, Disk, Durability, Failure, Geometry, Op, Queued, RangeLimits, Request, Ticket,
};
use pollux_memory::Region;
use pollux_ring::{Areas, Buffer, DriverEnd, Layout, RingIndex, Suppression};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::poll::{Bounds, Polling};
use crate::session::config::MAX_RANGES;
use crate::tuning::Kicks;
use rig::{AT_ONCE, BUFFERS, DISK, IOERR, OK, RING, Rig, UNSUPP, alarm, pattern, ranges, setup};

#[test]
fn what_is_written_is_read_back() {
    let mut rig = Rig::new();
    assert_eq!(rig.request(Kind::Out, 3, &pattern(4), 0).0, OK);
    assert_eq!(rig.request(Kind::In, 3, &[], 2048), (OK, pattern(4)));
    let counted = rig.queue.stats().snapshot();
    assert_eq!(counted.requests.write.ok, 1);
    assert_eq!((counted.bytes_read, counted.bytes_written), (2048, 2048));
}

#[test]
fn what_a_disk_has_grown_by_is_in_reach_of_the_next_request() {
    let mut rig = Rig::new();
    let half = DISK / SECTOR / 2;
    rig.rules.bytes.store(DISK / 2, Ordering::Release);
    assert_eq!(rig.request(Kind::In, half - 1, &[], 512).0, OK);
    assert_eq!(rig.request(Kind::In, half, &[], 512).0, IOERR);
    rig.rules.bytes.store(DISK, Ordering::Release);
    assert_eq!(rig.request(Kind::In, half, &[], 512).0, OK);
}

#[test]
fn any_layout_is_the_same_request() {
    let mut rig = Rig::new();
    let header = RequestHeader {
        kind: Kind::Out,
        sector: 0,
    };
    let bytes = [&header.to_bytes()[..], &pattern(1)].concat();
    // A header over three descriptors, the last of which goes on with the data.
    let readable = [&bytes[..5], &bytes[5..6], &bytes[6..]].map(|part| rig.buffer(part));
    let status = rig.buffer(&[0xff]);
    assert_eq!(rig.send(&readable, &[status]), 1);
    assert_eq!(rig.bytes(status), [OK]);
    // The status byte at the end of the data's descriptor.
    let header = rig.buffer(
        &RequestHeader {
            kind: Kind::In,
            sector: 0,
        }
        .to_bytes(),
    );
    let answer = rig.buffer(&[0xee; 513]);
    assert_eq!(rig.send(&[header], &[answer]), 513);
    assert_eq!(rig.bytes(answer), [&pattern(1)[..], &[OK]].concat());
}

#[test]
fn reads_and_writes_that_break_a_rule_are_io_errors() {
    let end = DISK / SECTOR;
    for (sector, bytes) in [
        (end, 512),
        (end - 1, 1024),
        (u64::MAX, 512),
        (u64::MAX / SECTOR + 1, 512),
        (0, 511),
        (0, 513),
        (0, 0x8000 + 512),
    ] {
        let mut rig = Rig::new();
        let (status, data) = rig.request(Kind::In, sector, &[], bytes);
        assert_eq!(
            status, IOERR,
            "a read of {bytes} bytes at sector {sector:#x}"
        );
        assert!(data.iter().all(|byte| *byte == 0xee), "nothing was written");
        let status = rig.request(Kind::Out, sector, &vec![1; bytes], 0).0;
        assert_eq!(
            status, IOERR,
            "a write of {bytes} bytes at sector {sector:#x}"
        );
        assert_eq!(rig.request(Kind::In, end - 1, &[], 512), (OK, vec![0; 512]));
    }
}

#[test]
fn more_segments_than_were_advertised_are_refused() {
    for (segments, expected) in [(4, OK), (5, IOERR)] {
        let mut rig = Rig::new();
        let header = RequestHeader {
            kind: Kind::In,
            sector: 0,
        };
        let readable = [rig.buffer(&header.to_bytes())];
        let mut writable: Vec<_> = (0..segments).map(|_| rig.buffer(&[0xee; 512])).collect();
        let status = rig.buffer(&[0xff]);
        writable.push(status);
        rig.send(&readable, &writable);
        assert_eq!(rig.bytes(status), [expected], "{segments} segments");
    }
}

#[test]
fn a_read_only_disk_refuses_what_changes_it() {
    let geometry = Geometry {
        access: Access::ReadOnly,
        ..Geometry::plain(DISK)
    };
    let mut rig = Rig::with(geometry, true);
    assert_eq!(rig.request(Kind::Out, 0, &pattern(1), 0).0, IOERR);
    let range = ranges(&[(0, 1, false)]);
    // Whether it could do them if it were writable or, as a file, says nothing of that.
    for _ in 0..2 {
        assert_eq!(rig.request(Kind::Discard, 0, &range, 0).0, IOERR);
        assert_eq!(rig.request(Kind::WriteZeroes, 0, &range, 0).0, IOERR);
        rig.queue.setup.rules.geometry.discard = None;
        rig.queue.setup.rules.geometry.write_zeroes = None;
    }
    assert_eq!(rig.request(Kind::In, 0, &[], 512).0, OK);
    assert_eq!(rig.request(Kind::Flush, 0, &[], 0).0, OK);
}

#[test]
fn ranges_are_zeroed_one_by_one() {
    for kind in [Kind::Discard, Kind::WriteZeroes] {
        let mut rig = Rig::new();
        assert_eq!(rig.request(Kind::Out, 0, &pattern(8), 0).0, OK);
        let range = ranges(&[(1, 1, false), (3, 0, false), (4, 2, false)]);
        assert_eq!(rig.request(kind, 0, &range, 0).0, OK);
        let mut expected = pattern(8);
        expected[512..1024].fill(0);
        expected[2048..3072].fill(0);
        assert_eq!(rig.request(Kind::In, 0, &[], 4096).1, expected);
    }
}

#[test]
fn ranges_that_break_a_rule_change_nothing() {
    let end = DISK / SECTOR;
    let many = usize::try_from(MAX_RANGES).unwrap() + 1;
    let mut reserved = ranges(&[(0, 1, false)]);
    reserved[12] = 2;
    for (kind, out, expected) in [
        (Kind::Discard, ranges(&[(0, 1, true)]), UNSUPP),
        (Kind::Discard, reserved.clone(), UNSUPP),
        (Kind::WriteZeroes, reserved, UNSUPP),
        (
            Kind::WriteZeroes,
            ranges(&[(0, 1, false), (end, 1, false)]),
            IOERR,
        ),
        (Kind::Discard, ranges(&[(end - 1, 2, false)]), IOERR),
        (Kind::Discard, ranges(&[(u64::MAX, 1, false)]), IOERR),
        (Kind::Discard, ranges(&vec![(0, 1, false); many]), IOERR),
        (Kind::Discard, vec![0; 15], IOERR),
        (Kind::Discard, vec![0; 17], IOERR),
        (Kind::WriteZeroes, vec![], IOERR),
    ] {
        let mut rig = Rig::new();
        assert_eq!(rig.request(Kind::Out, 0, &pattern(1), 0).0, OK);
        assert_eq!(
            rig.request(kind, 0, &out, 0).0,
            expected,
            "{kind:?} of {out:?}"
        );
        assert_eq!(rig.request(Kind::In, 0, &[], 512).1, pattern(1));
    }
}

#[test]
fn a_disk_without_ranges_does_not_know_them() {
    let mut rig = Rig::new();
    rig.queue.setup.rules.geometry.discard = None;
    rig.queue.setup.rules.geometry.write_zeroes = None::<RangeLimits>;
    let range = ranges(&[(0, 1, false)]);
    assert_eq!(rig.request(Kind::Discard, 0, &range, 0).0, UNSUPP);
    assert_eq!(rig.request(Kind::WriteZeroes, 0, &range, 0).0, UNSUPP);
}

#[test]
fn an_unknown_request_is_unsupported_and_a_short_header_an_error() {
    let mut rig = Rig::new();
    assert_eq!(rig.request(Kind::Unknown(77), 0, &[], 0).0, UNSUPP);
    let (short, status) = (rig.buffer(&[0; 15]), rig.buffer(&[0xff]));
    rig.send(&[short], &[status]);
    assert_eq!(rig.bytes(status), [IOERR]);
}

#[test]
fn the_serial_number_is_told_as_far_as_there_is_room() {
    let mut rig = Rig::new();
    let (status, serial) = rig.request(Kind::GetId, 0, &[], 20);
    assert_eq!(
        (status, &serial[..]),
        (OK, &b"serial-7\0\0\0\0\0\0\0\0\0\0\0\0"[..])
    );
    assert_eq!(rig.request(Kind::GetId, 0, &[], 3), (OK, b"ser".to_vec()));
    assert_eq!(rig.request(Kind::GetId, 0, &[], 24).1[20..], [0xee; 4]);
}

#[test]
fn a_chain_without_a_place_for_the_status_comes_back_empty() {
    let mut rig = Rig::new();
    let header = rig.buffer(
        &RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        }
        .to_bytes(),
    );
    assert_eq!(rig.send(&[header], &[]), 0);
    assert_eq!(rig.request(Kind::Flush, 0, &[], 0).0, OK);
}

/// A channel that ends nothing, but remembers what it was asked.
#[derive(Default)]
struct Slow(Vec<Request>);

// SAFETY: it touches no memory.
unsafe impl Channel for Slow {
    fn queue(&mut self, request: Request) -> Queued {
        self.0.push(request);
        Queued::Pending
    }
    fn submit(&mut self) {}
    fn reap(&mut self, _: &mut dyn FnMut(pollux_disk::Completion)) {}
    fn arm(&mut self) -> pollux_disk::Armed {
        pollux_disk::Armed::Idle
    }
}

#[test]
fn writes_are_stable_unless_flush_was_negotiated_and_write_back_is_on() {
    for (flush, writeback, expected) in [
        (true, true, Durability::Volatile),
        (true, false, Durability::Stable),
        (false, true, Durability::Stable),
        (false, false, Durability::Stable),
    ] {
        let mut rig = Rig::with(Geometry::plain(DISK), writeback);
        rig.queue.setup.flush = flush;
        let header = RequestHeader {
            kind: Kind::Out,
            sector: 0,
        };
        let readable = [rig.buffer(&header.to_bytes()), rig.buffer(&pattern(1))];
        let status = rig.buffer(&[0xff]);
        rig.driver.stage(&readable, &[status], 0).unwrap();
        let _ = rig.driver.publish();
        let mut slow = Slow::default();
        let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
        let Op::Write { durability, .. } = slow.0[0].op else {
            panic!("a write is a write")
        };
        assert_eq!(durability, expected);
        rig.queue.complete(0, Ok(()));
    }
}

#[test]
fn a_request_of_several_ranges_ends_with_its_last_and_fails_with_any() {
    let mut rig = Rig::new();
    let header = RequestHeader {
        kind: Kind::Discard,
        sector: 0,
    };
    let out = ranges(&[(0, 1, false), (2, 1, false), (4, 1, false)]);
    let readable = [rig.buffer(&header.to_bytes()), rig.buffer(&out)];
    let status = rig.buffer(&[0xff]);
    rig.driver.stage(&readable, &[status], 0).unwrap();
    let _ = rig.driver.publish();
    let mut slow = Slow::default();
    let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
    assert_eq!(slow.0.len(), 3);
    rig.queue.drain();
    for (request, result) in slow
        .0
        .iter()
        .zip([Ok(()), Err(Failure::OutOfRange), Ok(())])
    {
        assert!(!rig.queue.staged());
        assert_eq!(rig.queue.drained(), None, "it waits for what is in flight");
        rig.queue
            .complete(Queue::of_ticket(request.ticket).1, result);
    }
    rig.queue.publish();
    assert_eq!(rig.bytes(status), [IOERR]);
    assert_eq!(rig.queue.drained(), Some(1));
    assert_eq!(rig.queue.stats().in_flight.get(), 1, "as of the last turn");
    rig.queue.end();
    assert_eq!(rig.queue.stats().in_flight.get(), 0);
}

#[test]
fn a_broken_ring_stops_the_queue_and_is_counted() {
    let mut rig = Rig::new();
    // The available index jumps by more than the ring holds.
    rig.memory
        .write_all_at(&100u16.to_le_bytes(), 0x4000 + 2)
        .unwrap();
    assert!(rig.queue.take(0, &mut Budget::default(), &mut *rig.channel) > 0);
    assert_eq!(
        rig.queue.take(0, &mut Budget::default(), &mut *rig.channel),
        0
    );
    assert_eq!(rig.queue.stats().snapshot().peer_faults, 1);
    assert_eq!(rig.queue.arm(), Armed::Idle, "nobody waits for it");
    // Of an error descriptor that comes later it is told at once.
    let told = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let error = Call::new(told.try_clone().unwrap().into()).unwrap();
    rig.queue.set_error(Some(error));
    assert!(rustix::io::read(&told, &mut [0; 8]).is_ok());
    rig.queue.drain();
    assert_eq!(rig.queue.drained(), Some(0));
}

#[test]
fn no_more_is_in_flight_than_the_ring_holds() {
    let mut rig = Rig::new();
    let mut slow = Slow::default();
    let header = rig.buffer(
        &RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        }
        .to_bytes(),
    );
    rig.driver.stage(&[header], &[], 0).unwrap();
    let _ = rig.driver.publish();
    let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
    // A driver that makes the same head available over and over, and never looks at the used ring.
    for round in 2..100u16 {
        rig.memory
            .write_all_at(&round.to_le_bytes(), 0x4000 + 2)
            .unwrap();
        let _ = rig.queue.take(0, &mut Budget::default(), &mut slow);
    }
    assert_eq!(slow.0.len(), usize::from(RING));
    assert_eq!(rig.queue.arm(), Armed::Idle, "a completion comes first");
    for request in std::mem::take(&mut slow.0) {
        rig.queue
            .complete(Queue::of_ticket(request.ticket).1, Ok(()));
    }
}
