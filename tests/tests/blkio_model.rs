//! An independent client against a model: what is written is what is read, whatever the shape of
//! the queues and of the requests.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io;
use std::ops::Range;

use blkio::ReqFlags;
use fastrand::Rng;
use pollux_tests::busy::while_busy;
use pollux_tests::client::{Access, Client, Memory, Queue, Shape};
use pollux_tests::load::{Limits, Load};
use pollux_tests::random::seed;
use pollux_tests::subject::{Disk, Subject};
use rustix::io::Errno;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const QUEUE_SIZES: [u16; 8] = [4, 8, 16, 64, 128, 256, 512, 1024];

/// The part of the disk that belongs to one of several queues.
fn share(of: usize, queues: usize) -> Range<u64> {
    let each = SIZE / queues as u64 / MIB * MIB;
    each * of as u64..each * (of as u64 + 1)
}

/// A load on every queue, each on a thread of its own and with its share of the disk.
fn run_all(subject: &Subject, shape: Shape, depth: usize, count: usize) -> io::Result<()> {
    println!("{shape:?}, {depth} in flight");
    let seed = seed();
    let (client, queues) = Client::connect(subject.socket(), shape)?;
    let limits = Limits::of(&client, shape.queue_size, depth)?;
    let shares = queues.len();
    std::thread::scope(|scope| {
        let work = |(index, mut queue): (usize, Queue)| {
            let client = &client;
            let random = Rng::with_seed(seed + index as u64);
            scope.spawn(move || {
                let mut load = Load::new(client, limits, &share(index, shares), random)?;
                load.run(&mut queue, count)?;
                load.verify(&mut queue)
            })
        };
        let threads: Vec<_> = queues.into_iter().enumerate().map(work).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("its message is above"))
    })
}

#[test]
fn a_sleeping_client_with_queues_of_every_size() {
    for queue_size in QUEUE_SIZES {
        let subject = Subject::start(Disk::memory(SIZE, 1), &["--queue-size", "1024"]).unwrap();
        run_all(&subject, Shape::blocking(1, queue_size), 16, 1000).unwrap();
    }
}

#[test]
fn a_polling_client_with_queues_of_every_size() {
    for queue_size in QUEUE_SIZES {
        let subject = Subject::start(Disk::memory(SIZE, 1), &["--queue-size", "1024"]).unwrap();
        run_all(&subject, Shape::polling(1, queue_size), 16, 1000).unwrap();
    }
}

#[test]
fn a_file_with_queues_of_several_sizes() {
    for queue_size in [4, 64, 1024] {
        let subject = Subject::start(Disk::file(SIZE, 1), &["--queue-size", "1024"]).unwrap();
        run_all(&subject, Shape::blocking(1, queue_size), 16, 600).unwrap();
    }
}

#[test]
fn several_queues_with_a_thread_each() {
    for queues in [2, 3, 4] {
        for disk in [Disk::memory(SIZE, queues), Disk::file(SIZE, queues)] {
            let subject = Subject::start(disk, &["--threads", "2"]).unwrap();
            run_all(&subject, Shape::blocking(queues, 128), 16, 600).unwrap();
        }
    }
}

#[test]
fn a_queue_of_1024_is_kept_full() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &["--queue-size", "1024"]).unwrap();
    run_all(&subject, Shape::polling(1, 1024), 200, 4000).unwrap();
}

#[test]
fn blocks_of_4096_bytes() {
    let subject = Subject::start(Disk::memory(SIZE, 1), &["--block-size", "4096"]).unwrap();
    run_all(&subject, Shape::blocking(1, 128), 16, 1000).unwrap();
}

#[test]
fn a_disk_for_reading_only_is_read_and_not_written() {
    let disk = Disk::file(1 << 20, 1).read_only();
    let subject = Subject::start(disk, &[]).unwrap();
    let mut content = vec![0; 1 << 20];
    Rng::with_seed(1).fill(&mut content);
    std::fs::write(subject.image(), &content).unwrap();

    let refused = Client::connect(subject.socket(), Shape::blocking(1, 64));
    let refusal = refused.err().expect("the disk says that it is read-only");
    assert_eq!(
        refusal.kind(),
        io::ErrorKind::ReadOnlyFilesystem,
        "{refusal}"
    );

    let shape = Shape {
        access: Access::ReadOnly,
        ..Shape::blocking(1, 64)
    };
    let (client, mut queues) = Client::connect(subject.socket(), shape).unwrap();
    let memory = client.memory(1 << 20).unwrap();
    queues[0].read(0, &memory, 0..1 << 20, 0);
    queues[0].finish().unwrap().unwrap();
    let mut found = vec![0; 1 << 20];
    memory.get(0, &mut found);
    assert!(found == content, "the disk is the file");
}

/// Reads `len` bytes at `offset`, on a queue that is otherwise idle.
fn read(queue: &mut Queue, memory: &Memory, offset: u64, len: usize) -> Vec<u8> {
    memory.fill(0..len, 0xee);
    queue.read(offset, memory, 0..len, 0);
    queue.finish().unwrap().unwrap();
    let mut found = vec![0; len];
    memory.get(0, &mut found);
    found
}

#[test]
fn a_request_across_the_end_fails_alone_and_changes_nothing() {
    const LEN: usize = 8192;
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let (client, mut queues) = Client::connect(subject.socket(), Shape::blocking(1, 128)).unwrap();
    let queue = &mut queues[0];
    let memory = client.memory(1 << 16).unwrap();
    let last = SIZE - LEN as u64;
    memory.fill(0..LEN, 0x11);
    queue.write(last, &memory, 0..LEN, 0, ReqFlags::empty());
    queue.finish().unwrap().unwrap();

    // Tokens of those that must fail are odd; the good ones lie between them in one batch.
    memory.fill(0..LEN, 0x22);
    let (across, beyond, huge) = (SIZE - 512, SIZE, 1 << 62);
    let len = LEN as u64;
    queue.read(across, &memory, LEN..2 * LEN, 1);
    queue.flush(2);
    queue.write(across, &memory, 0..LEN, 3, ReqFlags::empty());
    queue.read(0, &memory, 2 * LEN..3 * LEN, 4);
    queue.write_zeroes(across, len, 5, ReqFlags::empty());
    queue.write(0, &memory, 0..LEN, 6, ReqFlags::empty());
    queue.discard(across, len, 7);
    queue.discard(4096, 4096, 8);
    queue.read(beyond, &memory, 3 * LEN..3 * LEN + 512, 9);
    queue.write_zeroes(8192, 4096, 10, ReqFlags::NO_UNMAP);
    queue.write(huge, &memory, 0..LEN, 11, ReqFlags::empty());
    queue.read(last, &memory, 2 * LEN..3 * LEN, 12);
    queue.wait(12).unwrap();
    let mut seen = vec![];
    while let Some(done) = queue.take() {
        let expected = if done.token % 2 == 1 {
            Err(Errno::IO)
        } else {
            Ok(())
        };
        assert_eq!(done.result, expected, "request {}", done.token);
        seen.push(done.token);
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=12).collect::<Vec<_>>());
    assert!(
        read(queue, &memory, last, LEN) == [0x11; LEN],
        "the end of the disk has changed"
    );
    assert!(
        read(queue, &memory, 0, 4096) == [0x22; 4096],
        "a good write is lost"
    );
}

/// Memory comes and goes 1100 times, more often than the server has slots, while another queue is
/// busy the whole time; the server forgets every one of them.
#[test]
fn memory_comes_and_goes_under_load() {
    let subject = Subject::start(Disk::memory(SIZE, 2), &[]).unwrap();
    let (client, mut queues) = Client::connect(subject.socket(), Shape::blocking(2, 128)).unwrap();
    let limits = Limits::of(&client, 128, 16).unwrap();
    let (mut steady, mut changing) = (queues.remove(0), queues.remove(0));
    let slots = client.long("max-mem-regions").unwrap();
    assert!(
        slots < 1000,
        "{slots} slots: more rounds are needed to see that they become free"
    );
    let mut load = Load::new(&client, limits, &share(0, 2), Rng::with_seed(seed())).unwrap();
    let (rounds, ()) = while_busy(
        || load.run(&mut steady, 50).unwrap(),
        || {
            for round in 0..1100 {
                come_and_go(&client, &mut changing, round);
            }
        },
    );
    assert!(rounds > 0, "the load ran meanwhile");
    load.verify(&mut steady).unwrap();
    drop((load, client));
    assert_eq!(
        shared_mappings(&subject),
        1,
        "only the rings are still mapped"
    );
}

/// One region is mapped and written from; while it goes, another comes and is read into.
fn come_and_go(client: &Client, queue: &mut Queue, round: u16) {
    let byte = round.to_le_bytes()[0];
    let offset = share(1, 2).start + u64::from(round) * 4096;
    let memory = client.memory(4096 * (1 + usize::from(round) % 16)).unwrap();
    memory.fill(0..4096, byte);
    queue.write(offset, &memory, 0..4096, 1, ReqFlags::empty());
    queue.finish().unwrap().unwrap();
    let second = client.memory(8192).unwrap();
    drop(memory);
    assert!(
        read(queue, &second, offset, 4096) == [byte; 4096],
        "round {round}"
    );
}

/// How many of a client's memory files the server has mapped.
fn shared_mappings(subject: &Subject) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", subject.server.pid())).unwrap();
    let of_a_client =
        |line: &&str| line.contains("memfd:libblkio-buf") || line.contains("memfd:virtio-ring");
    maps.lines().filter(of_a_client).count()
}
