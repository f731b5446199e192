//! The table of malformed requests, each in a ring that is as it should be: the status that the specification
//! names, and nothing else. And of layouts that look odd and are legal: they succeed.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use pollux_tests::frontend::{NEXT, PAGE, Part, Queue, SLOTS, Status, WRITE, feature};
use pollux_tests::hostile::{DISK, Target};
use pollux_tests::row;

const SECTORS: u64 = DISK / 512;
/// The kinds of requests.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// What a request is made of besides its header.
struct Asked {
    kind: u32,
    sector: u64,
    /// Pieces of data: offset in the slot's page, bytes, flags.
    data: Vec<(usize, u32, u16)>,
}

fn asked(kind: u32, sector: u64, len: u32) -> Asked {
    let flags = if kind == OUT { 0 } else { WRITE };
    let data = vec![(0, len, flags)];
    Asked { kind, sector, data }
}

fn data(queue: &Queue, slot: u16, asked: &Asked) -> Vec<Part> {
    let part =
        |(at, len, flags): &(usize, u32, u16)| queue.part(queue.data(slot) + at, *len, *flags);
    asked.data.iter().map(part).collect()
}

fn finish(queue: &mut Queue, slot: u16) -> Status {
    queue.publish_and_kick();
    assert_eq!(queue.finish(), [slot], "it comes back once");
    queue.status(slot)
}

/// Every queue answers `asked` so, and goes on.
fn answers(target: &Target, status: Status, asked: &[Asked]) {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.round(0x33);
        for (slot, asked) in (0..SLOTS).zip(asked) {
            queue.begin(slot, asked.kind, asked.sector);
            let mut parts = vec![queue.part(queue.header(slot), 16, 0)];
            parts.extend(data(queue, slot, asked));
            parts.push(queue.part(queue.header(slot) + 16, 1, WRITE));
            queue.stage(slot, &parts);
            let got = finish(queue, slot);
            assert_eq!(
                got, status,
                "kind {}, sector {:#x}, {:?}",
                asked.kind, asked.sector, asked.data
            );
        }
        queue.round(0x34);
    }
}

row!(sectors_whose_bytes_wrap, |target| {
    // Times 512, each of these is a place inside the disk.
    for kind in [IN, OUT] {
        let sectors = [
            1u64 << 55,
            (1 << 55) + 8,
            1 << 63,
            u64::MAX - 7,
            u64::MAX,
            (1 << 56) - 8,
        ];
        let all: Vec<_> = sectors
            .iter()
            .map(|sector| asked(kind, *sector, 4096))
            .collect();
        answers(target, Status::IoErr, &all);
    }
});

row!(a_request_that_straddles_the_end, |target| {
    for kind in [IN, OUT] {
        let all: Vec<_> = (SECTORS - 7..SECTORS + 2)
            .map(|sector| asked(kind, sector, 4096))
            .collect();
        answers(target, Status::IoErr, &all);
    }
    answers(
        target,
        Status::Ok,
        &[asked(IN, SECTORS - 8, 4096), asked(IN, SECTORS - 1, 512)],
    );
});

row!(a_write_that_straddles_the_end_changes_nothing, |target| {
    let mut driver = target.driver();
    let queue = &mut driver.queues[0];
    queue.write(0, SECTORS - 8, 0x11);
    assert_eq!(finish(queue, 0), Status::Ok);
    queue.write(1, SECTORS - 4, 0x22);
    assert_eq!(finish(queue, 1), Status::IoErr);
    queue.read(2, SECTORS - 8);
    assert_eq!(finish(queue, 2), Status::Ok);
    assert_eq!(queue.page(2), [0x11; PAGE]);
});

row!(data_that_is_no_multiple_of_512, |target| {
    for kind in [IN, OUT] {
        let all: Vec<_> = [1, 511, 513, 4095, 1000]
            .iter()
            .map(|len| asked(kind, 0, *len))
            .collect();
        answers(target, Status::IoErr, &all);
    }
});

row!(unknown_types, |target| {
    // Among them those of SCSI, zones and lifetimes, which are not offered.
    let kinds = [
        2,
        3,
        5,
        6,
        7,
        9,
        10,
        12,
        14,
        15,
        16,
        18,
        24,
        99,
        1 << 31,
        u32::MAX,
    ];
    let all: Vec<_> = kinds.iter().map(|kind| asked(*kind, 0, 512)).collect();
    answers(target, Status::Unsupported, &all);
});

/// A discard or write-zeroes of these segments.
fn ranges(target: &Target, status: Status, segments: &[u8]) {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        for kind in [DISCARD, WRITE_ZEROES] {
            let len = u32::try_from(segments.len()).unwrap();
            queue.begin(0, kind, 0);
            let at = queue.data(0);
            driver.memory.put(at, segments);
            let parts = [
                queue.part(queue.header(0), 16, 0),
                queue.part(at, len, 0),
                queue.part(queue.header(0) + 16, 1, WRITE),
            ];
            queue.stage(0, &parts);
            assert_eq!(finish(queue, 0), status, "kind {kind}, {segments:?}");
        }
    }
}

fn segment(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [
        &sector.to_le_bytes()[..],
        &sectors.to_le_bytes(),
        &flags.to_le_bytes(),
    ]
    .concat()
}

row!(ranges_that_cannot_be, |target| {
    for (sector, sectors) in [
        (1 << 55, 8),
        (u64::MAX, 1),
        (u64::MAX - 7, 8),
        (SECTORS - 4, 8),
        (SECTORS, 1),
        (0, u32::MAX),
    ] {
        ranges(target, Status::IoErr, &segment(sector, sectors, 0));
    }
    let one = segment(0, 8, 0);
    ranges(target, Status::IoErr, &one[..15]);
    ranges(target, Status::IoErr, &[&one[..], &one[..7]].concat());
    ranges(target, Status::IoErr, &one.repeat(17));
    ranges(target, Status::Unsupported, &segment(0, 8, 0x8000_0000));
    ranges(target, Status::Ok, &one.repeat(16));
});

/// Stages a chain as it is and waits for it: what came back, and how many bytes are said to be written.
fn raw(queue: &mut Queue, parts: &[Part]) -> Status {
    queue.stage(0, parts);
    finish(queue, 0)
}

row!(a_request_without_a_place_for_its_status, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        for kind in [IN, OUT, FLUSH, 99] {
            queue.begin(0, kind, 0);
            let parts = [queue.part(queue.header(0), 16, 0)];
            assert_eq!(
                raw(queue, &parts),
                Status::Other(0xff),
                "nothing is written anywhere"
            );
        }
        let parts = [
            queue.part(queue.header(0), 16, 0),
            queue.part(queue.data(0), 512, 0),
        ];
        queue.begin(0, OUT, 0);
        assert_eq!(raw(queue, &parts), Status::Other(0xff));
    }
});

row!(a_header_that_is_short_or_missing, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        for len in [0, 1, 8, 15] {
            queue.begin(0, FLUSH, 0);
            let parts = [
                queue.part(queue.header(0), len, 0),
                queue.part(queue.header(0) + 16, 1, WRITE),
            ];
            assert_eq!(raw(queue, &parts), Status::IoErr, "{len} bytes");
        }
        let status = queue.part(queue.header(0) + 16, 1, WRITE);
        assert_eq!(raw(queue, &[status]), Status::IoErr);
    }
});

row!(a_chain_of_nothing, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        for flags in [0, WRITE] {
            let empty = Part {
                address: 0,
                len: 0,
                flags,
            };
            queue.stage(0, &[empty]);
            queue.publish_and_kick();
            assert_eq!(queue.finish(), [0]);
        }
    }
});

row!(no_data_at_all, |target| {
    answers(target, Status::Ok, &[asked(IN, 0, 0), asked(OUT, 0, 0)]);
});

row!(data_in_the_wrong_direction, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.round(0x44);
        // A write whose data may only be written: there is nothing to store.
        queue.begin(0, OUT, 0);
        let parts = [
            queue.part(queue.header(0), 16, 0),
            queue.part(queue.data(0), 512, WRITE),
            queue.part(queue.header(0) + 16, 1, WRITE),
        ];
        raw(queue, &parts);
        // A read whose data may only be read: there is nothing to fill.
        queue.begin(0, IN, 0);
        driver.memory.put(queue.data(0), &[0x77; 512]);
        let parts = [
            queue.part(queue.header(0), 16, 0),
            queue.part(queue.data(0), 512, 0),
            queue.part(queue.header(0) + 16, 1, WRITE),
        ];
        raw(queue, &parts);
        assert_eq!(driver.memory.get(queue.data(0), 512), [0x77; 512]);
        queue.read(1, 0);
        assert_eq!(finish(queue, 1), Status::Ok);
        assert_eq!(
            queue.page(1),
            [0x44; PAGE],
            "and nothing was written to the disk"
        );
    }
});

row!(layouts_that_are_odd_and_legal, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        // One buffer: 16 bytes of header and 512 of data behind them.
        let at = queue.data(8);
        queue.begin(0, OUT, 0);
        let header = driver.memory.get(queue.header(0), 16);
        driver.memory.put(at, &header);
        driver.memory.put(at + 16, &[0x61; 512]);
        let status = queue.part(queue.header(0) + 16, 1, WRITE);
        let merged = queue.part(at, 16 + 512, 0);
        assert_eq!(
            raw(queue, &[merged, status]),
            Status::Ok,
            "header merged with data"
        );

        // The status is the last byte of the data's descriptor.
        driver.memory.put(at, &[0xff; 513]);
        queue.begin(0, IN, 0);
        let header = queue.part(queue.header(0), 16, 0);
        queue.stage(0, &[header, queue.part(at, 513, WRITE)]);
        finish(queue, 0);
        assert_eq!(driver.memory.get(at, 512), [0x61; 512]);
        assert_eq!(driver.memory.get(at + 512, 1), [0], "status with the data");

        // A header of two pieces, split in the middle of the sector's number.
        queue.begin(0, IN, 0);
        let (first, second) = (
            queue.part(queue.header(0), 11, 0),
            queue.part(queue.header(0) + 11, 5, 0),
        );
        let data = queue.part(queue.data(0), 512, WRITE);
        assert_eq!(
            raw(queue, &[first, second, data, status]),
            Status::Ok,
            "split header"
        );

        // Pieces of no length between.
        queue.begin(0, IN, 0);
        let nothing = Part { len: 0, ..header };
        assert_eq!(
            raw(queue, &[header, nothing, data, status]),
            Status::Ok,
            "an empty piece"
        );

        // A table with everything in pieces.
        queue.write_indirect(3, 8, 0x62);
        assert_eq!(finish(queue, 3), Status::Ok, "pieces in a table");

        // More data than a flush needs.
        queue.begin(0, FLUSH, 5);
        assert_eq!(
            raw(queue, &[header, data, status]),
            Status::Ok,
            "a flush with data and a sector"
        );

        // A serial number into too little and too much.
        for len in [1, 19, 20, 21, 512] {
            queue.begin(0, GET_ID, 0);
            let data = queue.part(queue.data(0), len, WRITE);
            assert_eq!(
                raw(queue, &[header, data, status]),
                Status::Ok,
                "{len} bytes of serial number"
            );
        }
    }
});

row!(a_chain_as_long_as_the_ring, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.begin(0, OUT, 0);
        let count = 4 * SLOTS;
        for number in 0..count {
            let (offset, len, flags) = match number {
                0 => (queue.header(0), 16, NEXT),
                last if last == count - 1 => (queue.header(0) + 16, 1, WRITE),
                // 254 pieces, of which two hold a sector together.
                odd => (
                    queue.data(1),
                    if odd.is_multiple_of(2) { 500 } else { 12 },
                    NEXT,
                ),
            };
            queue.write_descriptor(
                queue.descriptor(number),
                queue.part(offset, len, flags),
                number + 1,
            );
        }
        queue.offer(0);
        // More segments than SEG_MAX, which the driver knows: an error, but no fault.
        assert_eq!(finish(queue, 0), Status::IoErr);
        assert_ne!(driver.features & feature::FLUSH, 0);
    }
});

fn read_only(target: &Target) {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.write(0, 0, 1);
        assert_eq!(finish(queue, 0), Status::IoErr);
        queue.read(1, 0);
        assert_eq!(finish(queue, 1), Status::Ok);
        assert_eq!(queue.page(1), [0; PAGE]);
        for kind in [DISCARD, WRITE_ZEROES] {
            driver.memory.put(queue.data(2), &segment(0, 8, 0));
            queue.begin(2, kind, 0);
            let parts = [
                queue.part(queue.header(2), 16, 0),
                queue.part(queue.data(2), 16, 0),
                queue.part(queue.header(2) + 16, 1, WRITE),
            ];
            queue.stage(2, &parts);
            assert_ne!(finish(queue, 2), Status::Ok);
        }
    }
}

/// Afterwards a session may only read.
#[test]
fn a_disk_for_reading_is_written() {
    for queues in [1, 4] {
        let target = Target::start(queues, "read-only = true");
        read_only(&target);
    }
}

// Heads that come back are offered again at once, for ever, by a guest that does not wait: the queue has its
// budget, and the other disk, which the row drives, its turn.
row!(heads_recycled_for_ever, |target| {
    let mut driver = target.driver();
    let rounds = 200_000u32;
    for queue in &mut driver.queues {
        for slot in 0..SLOTS {
            queue.begin(slot, FLUSH, 0);
            let parts = [
                queue.part(queue.header(slot), 16, 0),
                queue.part(queue.header(slot) + 16, 1, WRITE),
            ];
            queue.write_table(queue.descriptor(4 * slot), &parts, 4 * slot);
        }
    }
    for round in 0..rounds {
        for queue in &mut driver.queues {
            // As far ahead as the ring allows, with the same few heads again and again.
            while queue.published().wrapping_sub(queue.used()) < 4 * SLOTS {
                queue.offer(4 * u16::try_from(round % 3).unwrap());
                queue.publish();
            }
        }
    }
    for queue in &mut driver.queues {
        queue.publish_and_kick();
        queue.finish();
        assert_eq!(queue.status(0), Status::Ok);
    }
});

// A head that is in flight is offered again: the second request is the driver's own loss.
row!(one_head_in_flight_many_times, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.read(0, 0);
        for _ in 1..4 * SLOTS {
            queue.offer(0);
        }
        queue.publish_and_kick();
        assert_eq!(queue.finish(), vec![0; usize::from(4 * SLOTS)]);
        assert_eq!(queue.status(0), Status::Ok);
    }
});
