//! Every request ends, once, as the geometry says: even on a disk that keeps nothing.

use std::thread;

use pollux_disk::{Disk, Failure, Geometry, Op, Request, Ticket, Unmap};

use crate::held::Held;
use crate::{Buffer, Client, read, write, zeroes};

/// All of it.
pub fn all(disk: &Held) {
    describes_itself(&disk.geometry());
    refuses_what_lies_beyond_its_end(&***disk);
    refuses_parts_of_blocks(&***disk);
    does_what_it_says_it_can(&***disk);
    leaves_tickets_to_their_owner(&***disk);
    ends_requests_without_bytes(&***disk);
    serves_a_channel_from_thread_to_thread(&***disk);
    knows_memory_and_forgets_it(&***disk);
    counts_by_name(&***disk);
    disk.renew();
}

fn describes_itself(geometry: &Geometry) {
    let Geometry {
        bytes,
        block,
        physical_block,
        ..
    } = *geometry;
    assert!(
        block.is_power_of_two() && (512..=65536).contains(&block),
        "a block size is a power of two from 512 to 65536: {geometry:?}"
    );
    assert!(
        bytes.is_multiple_of(block.into()),
        "a disk has whole blocks: {geometry:?}"
    );
    assert!(
        physical_block >= block && physical_block.is_multiple_of(block),
        "a physical block is made of blocks: {geometry:?}"
    );
    for range in [geometry.discard, geometry.write_zeroes]
        .into_iter()
        .flatten()
    {
        assert!(
            range.max_bytes >= block.into() && range.alignment.is_multiple_of(block),
            "ranges have whole blocks: {geometry:?}"
        );
    }
}

fn every_kind(at: u64, buffer: &Buffer) -> [Op; 4] {
    let (len, unmap) = (buffer.spans().bytes(), Unmap::Allowed);
    [
        read(at, buffer),
        write(at, buffer),
        Op::Discard { at, len },
        zeroes(at, len, unmap),
    ]
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("tests are small")
}

fn refuses_what_lies_beyond_its_end(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let block = u64::from(disk.geometry().block);
    let end = disk.geometry().bytes;
    let buffer = Buffer::new(in_memory(2 * block));
    for at in [end - block, end, end + block, u64::MAX - block + 1] {
        for op in every_kind(at, &buffer) {
            let result = client.run(op);
            let beyond = result == Err(Failure::OutOfRange);
            assert!(
                beyond || result == Err(Failure::Unsupported),
                "{op:?}: {result:?}"
            );
        }
    }
    assert_eq!(client.run(read(end - 2 * block, &buffer)), Ok(()));
}

fn refuses_parts_of_blocks(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let block = in_memory(disk.geometry().block.into());
    let (whole, part) = (Buffer::new(block), Buffer::new(block - 1));
    for op in every_kind(1, &whole)
        .into_iter()
        .chain(every_kind(0, &part))
    {
        let result = client.run(op);
        assert!(result.is_err(), "{op:?} is not of whole blocks: {result:?}");
    }
}

fn does_what_it_says_it_can(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let Geometry {
        block,
        discard,
        write_zeroes,
        ..
    } = disk.geometry();
    let len = u64::from(block);
    let expected = |can: bool| {
        if can {
            Ok(())
        } else {
            Err(Failure::Unsupported)
        }
    };
    let result = client.run(Op::Discard { at: 0, len });
    assert_eq!(result, expected(discard.is_some()), "a discard");
    for unmap in [Unmap::Allowed, Unmap::Forbidden] {
        let result = client.run(zeroes(0, len, unmap));
        assert_eq!(
            result,
            expected(write_zeroes.is_some()),
            "zeroes, {unmap:?}"
        );
    }
    assert_eq!(client.run(Op::Flush), Ok(()), "every disk can flush");
}

/// A ticket may be any number, and several requests may have the same.
fn leaves_tickets_to_their_owner(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let block = in_memory(disk.geometry().block.into());
    let numbers = [7, 7, u64::MAX, 0, u64::MAX, 7, 1 << 63, 0];
    let buffers = numbers.map(|_| Buffer::new(block));
    let requests = numbers.iter().zip(&buffers).map(|(&number, buffer)| {
        let ticket = Ticket(number);
        let op = read(0, buffer);
        Request { ticket, op }
    });
    let mut ended: Vec<_> = client
        .run_requests(requests)
        .into_iter()
        .map(|done| (done.ticket.0, done.result))
        .collect();
    let mut expected = numbers.map(|number| (number, Ok(())));
    ended.sort_by_key(|(number, _)| *number);
    expected.sort_by_key(|(number, _)| *number);
    assert_eq!(ended, expected, "tickets come back as they were");
}

fn ends_requests_without_bytes(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let nothing = Buffer::parts(1, []);
    let end = disk.geometry().bytes;
    for at in [0, end] {
        for op in [read(at, &nothing), write(at, &nothing)] {
            assert_eq!(client.run(op), Ok(()), "{op:?} of no bytes");
        }
    }
    assert_eq!(client.run_all(&[]), [], "an empty batch");
}

fn serves_a_channel_from_thread_to_thread(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let block = in_memory(disk.geometry().block.into());
    for _ in 0..3 {
        client = thread::scope(|scope| {
            let used = scope.spawn(|| {
                let buffer = Buffer::new(block);
                let ops = [read(0, &buffer), Op::Flush];
                assert_eq!(client.run_all(&ops), [Ok(()), Ok(())]);
                client
            });
            used.join().expect("it has said why")
        });
    }
}

/// Memory may be announced or not, and taken back while a channel is open.
fn knows_memory_and_forgets_it(disk: &dyn Disk) {
    let mut early = Client::new(disk);
    let block = in_memory(disk.geometry().block.into());
    let (known, unknown) = (Buffer::new(block), Buffer::new(block));
    let mapped = disk.map(known.region());
    assert!(mapped.is_ok(), "memory can be announced: {mapped:?}");
    let mut late = Client::new(disk);
    for client in [&mut early, &mut late] {
        for buffer in [&known, &unknown] {
            assert_eq!(client.run(read(0, buffer)), Ok(()), "memory is announced");
        }
    }
    disk.unmap(known.region());
    for client in [&mut early, &mut late] {
        for buffer in [&known, &unknown] {
            assert_eq!(client.run(read(0, buffer)), Ok(()), "memory is taken back");
        }
    }
}

fn counts_by_name(disk: &dyn Disk) {
    let mut names: Vec<_> = disk.counters().iter().map(|(name, _)| *name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "each counter has its own name");
}
