//! Requests of every shape and kind, from our driver end through a queue to a real memory disk.

mod calls;
mod fair;
mod idle;
mod limit;
mod lost;
mod resume;
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

use super::*;
use crate::poll::{Bounds, Polling};
use crate::session::config::MAX_RANGES;
use crate::tuning::Kicks;

/// Calls at once, whatever that makes of the requests a second.
const AT_ONCE: Tuning = Tuning {
    calls: Calls::AtOnce,
    polling: Polling::Adaptive,
    poll_bounds: Bounds {
        max: Window::MOST,
        cpu: 100,
    },
    signal: Signal::CompletionsFirst,
    kicks: Kicks::OffWhileAwake,
};

const RING: u16 = 16;
const DISK: u64 = 64 * SECTOR;
/// Where the driver's buffers start, behind the ring.
const BUFFERS: u64 = 0x1_0000;

/// A driver, its memory, and a queue over a memory disk.
struct Rig {
    memory: std::fs::File,
    driver: DriverEnd,
    areas: Areas,
    table: Memory,
    rules: Rules,
    writeback: bool,
    queue: Queue,
    channel: Box<dyn Channel>,
    _sleeper: Sleeper,
    next: u64,
}

impl Rig {
    fn new() -> Self {
        Self::with(Geometry::plain(DISK), true)
    }

    fn with(geometry: Geometry, writeback: bool) -> Self {
        Self::sized(RING, geometry, writeback)
    }

    fn sized(entries: u16, geometry: Geometry, writeback: bool) -> Self {
        Self::in_memory_of(0x10_0000, entries, geometry, writeback)
    }

    fn in_memory_of(bytes: u64, entries: u16, geometry: Geometry, writeback: bool) -> Self {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(bytes).unwrap();
        let region = Region::map(memory.try_clone().unwrap(), 0, 0, 0, bytes).unwrap();
        let table = Memory::default().with(Arc::new(region)).unwrap();
        let layout = Layout::of(entries);
        // SAFETY: the rig has the table and the ring, and every test keeps the rig until its end.
        let span = |at, len: usize| unsafe { table.span(at, len as u64) }.unwrap();
        let areas = Areas::new(
            u32::from(entries),
            span(0, layout.descriptor),
            span(0x4000, layout.driver),
            span(0x8000, layout.device),
        )
        .unwrap();
        let disk = pollux_disk::Memory::new(geometry).unwrap();
        let rules = Rules {
            geometry: Geometry {
                access: geometry.access,
                ..disk.geometry()
            },
            bytes: Arc::new(AtomicU64::new(disk.geometry().bytes)),
            size_max: Some(0x8000),
            seg_max: 4,
            max_ranges: MAX_RANGES,
            pace: Pace::of(disk.effort()),
        };
        let ring = DeviceEnd::new(&areas, RingIndex(0), Suppression::EventIdx, true);
        let setup = setup(ring, &table, &rules, writeback);
        let sleeper = Sleeper::new().unwrap();
        Self {
            memory,
            driver: DriverEnd::new(&areas, Suppression::EventIdx, None),
            areas,
            table,
            rules,
            writeback,
            queue: Queue::new(setup, AT_ONCE),
            channel: disk.open_channel(sleeper.point()).unwrap(),
            _sleeper: sleeper,
            next: BUFFERS,
        }
    }

    /// A buffer with these bytes.
    fn buffer(&mut self, bytes: &[u8]) -> Buffer {
        let address = self.next;
        self.memory.write_all_at(bytes, address).unwrap();
        self.next += bytes.len() as u64;
        Buffer {
            address,
            len: u32::try_from(bytes.len()).unwrap(),
        }
    }

    fn bytes(&self, buffer: Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len as usize];
        self.memory
            .read_exact_at(&mut bytes, buffer.address)
            .unwrap();
        bytes
    }

    /// Sends one chain; returns the length that came back.
    fn send(&mut self, readable: &[Buffer], writable: &[Buffer]) -> u32 {
        self.driver.stage(readable, writable, 7).unwrap();
        let _ = self.driver.publish();
        assert!(
            self.queue
                .take(0, &mut Budget::default(), &mut *self.channel)
                > 0
        );
        self.queue.publish();
        assert_eq!(self.driver.look(), Ok(1));
        let done = self.driver.take().unwrap().unwrap();
        assert_eq!(done.token, 7);
        done.written
    }

    /// Sends a request in the usual layout; returns its status, and what it read.
    fn request(&mut self, kind: Kind, sector: u64, out: &[u8], room: usize) -> (u8, Vec<u8>) {
        let header = self.buffer(&RequestHeader { kind, sector }.to_bytes());
        let mut readable = vec![header];
        if !out.is_empty() {
            readable.push(self.buffer(out));
        }
        let data = self.buffer(&vec![0xee; room]);
        let status = self.buffer(&[0xff]);
        let writable = if room > 0 {
            vec![data, status]
        } else {
            vec![status]
        };
        self.send(&readable, &writable);
        (self.bytes(status)[0], self.bytes(data))
    }
}

/// An alarm of a session whose frontend has gone.
fn alarm() -> Arc<Alarm> {
    let (connection, _) = UnixStream::pair().unwrap();
    Arc::new(Alarm::new(connection.into()))
}

fn setup(ring: DeviceEnd, table: &Memory, rules: &Rules, writeback: bool) -> Setup {
    Setup {
        index: 0,
        ring,
        record: None,
        memory: Arc::new(table.clone()),
        alarm: alarm(),
        kick: None,
        call: None,
        error: None,
        rules: rules.clone(),
        serial: pollux_blk::serial("serial-7"),
        flush: true,
        writeback: Arc::new(AtomicBool::new(writeback)),
        dirty: None,
        stats: Arc::default(),
        limiter: Arc::default(),
        observation: Arc::new(Observation::of(1)),
        log_quotas: Arc::default(),
    }
}

const OK: u8 = Status::Ok as u8;
const IOERR: u8 = Status::IoErr as u8;
const UNSUPP: u8 = Status::Unsupp as u8;

fn pattern(sectors: u64) -> Vec<u8> {
    (0..sectors * SECTOR)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect()
}

fn ranges(segments: &[(u64, u32, bool)]) -> Vec<u8> {
    let segment = |&(sector, sectors, unmap): &(u64, u32, bool)| RangeSegment {
        sector,
        sectors,
        unmap,
    };
    segments
        .iter()
        .flat_map(|each| segment(each).to_bytes())
        .collect()
}

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
