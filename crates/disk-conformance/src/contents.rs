//! What was written is what is read.

use std::sync::Arc;
use std::thread;

use pollux_disk::{Disk, Durability, Op, Unmap};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::held::Held;
use crate::{Buffer, Client, pattern, read, write};

/// Makes a disk of so many bytes, all zeroes, that can be written. What it made before is not used any more.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn Disk>;

#[derive(Clone, Debug)]
struct Step {
    what: What,
    /// In blocks of the disk.
    at: u64,
    blocks: u64,
    cuts: Vec<usize>,
    seed: u64,
    durability: Durability,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Read,
    Write,
    Flush,
    Discard,
    Zero(Unmap),
}

const BLOCKS: u64 = 96;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        3 => Just(What::Read),
        5 => Just(What::Write),
        1 => Just(What::Flush),
        1 => Just(What::Discard),
        1 => Just(What::Zero(Unmap::Allowed)),
        1 => Just(What::Zero(Unmap::Forbidden)),
    ];
    let durability = prop_oneof![5 => Just(Durability::Volatile), 1 => Just(Durability::Stable)];
    // Cuts anywhere, and at pages as guests cut.
    let cuts = prop_oneof![
        prop::collection::vec(0..200_000usize, 0..5),
        prop::collection::vec((0..48usize).prop_map(|page| page * 4096), 0..5),
    ];
    let step = (what, 0..BLOCKS, 0..40u64, cuts, any::<u64>(), durability).prop_map(
        |(what, at, blocks, cuts, seed, durability)| Step {
            what,
            at,
            blocks: blocks.min(BLOCKS - at),
            cuts,
            seed,
            durability,
        },
    );
    prop::collection::vec(step, 1..40)
}

/// What a disk holds, as far as it is known.
struct Model {
    bytes: Vec<u8>,
    /// By block: a range that was discarded reads as anything until it is written again.
    known: Vec<bool>,
    block: usize,
}

impl Model {
    fn new(bytes: Vec<u8>, block: u32) -> Self {
        let block = usize::try_from(block).expect("a block is small");
        let known = vec![true; bytes.len() / block];
        Self {
            bytes,
            known,
            block,
        }
    }

    fn agrees(&self, at: usize, seen: &[u8]) -> bool {
        let first = at / self.block;
        (first..)
            .zip(seen.chunks(self.block))
            .all(|(number, seen)| {
                let at = number * self.block;
                !self.known[number] || self.bytes[at..at + seen.len()] == *seen
            })
    }

    fn know(&mut self, at: usize, len: usize, known: bool) {
        self.known[at / self.block..(at + len) / self.block].fill(known);
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.know(at, bytes.len(), true);
    }
}

fn run(strategy: impl Fn(Vec<Step>)) {
    let mut runner = TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    });
    let ran = runner.run(&steps(), |steps| {
        strategy(steps);
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Whatever is asked in whatever order, it holds what a plain array would.
pub fn agree_with_a_model(make: Make) {
    let block = make(1 << 20).geometry().block;
    run(|steps| {
        let disk = Held::new(make(BLOCKS * u64::from(block)));
        let bytes = usize::try_from(disk.geometry().bytes).expect("a small disk");
        let model = Model::new(vec![0; bytes], block);
        follow_all(&**disk, model, &steps);
    });
}

/// The same, on the one disk there is.
pub fn agree_on_a_device(disk: &Held) {
    let block = disk.geometry().block;
    let len = usize::try_from(BLOCKS * u64::from(block)).expect("a few blocks");
    run(|steps| {
        let bytes = pattern(len as u64, len);
        let written = Client::new(&***disk).write_bytes(0, &bytes);
        assert_eq!(written, Ok(()));
        follow_all(&***disk, Model::new(bytes, block), &steps);
    });
}

fn follow_all(disk: &dyn Disk, mut model: Model, steps: &[Step]) {
    let mut client = Client::new(disk);
    for step in steps {
        follow(&mut client, disk, &mut model, step);
    }
    let seen = client.read_bytes(0, model.bytes.len());
    assert!(model.agrees(0, &seen), "the whole disk");
}

fn follow(client: &mut Client, disk: &dyn Disk, model: &mut Model, step: &Step) {
    let geometry = disk.geometry();
    let block = u64::from(geometry.block);
    let (at, len) = (step.at * block, step.blocks * block);
    let first = usize::try_from(at).expect("inside the model");
    let count = usize::try_from(len).expect("inside the model");
    let durability = step.durability;
    let buffer = Buffer::cut(count, &step.cuts);
    match step.what {
        What::Read => {
            assert_eq!(client.run(read(at, &buffer)), Ok(()), "{step:?}");
            assert!(model.agrees(first, &buffer.bytes()), "{step:?}");
        }
        What::Write => {
            let bytes = pattern(step.seed, count);
            buffer.fill(&bytes);
            let from = buffer.spans();
            let op = Op::Write {
                at,
                from,
                durability,
            };
            assert_eq!(client.run(op), Ok(()), "{step:?}");
            model.write(first, &bytes);
        }
        What::Flush => assert_eq!(client.run(Op::Flush), Ok(()), "{step:?}"),
        What::Discard if geometry.discard.is_some() => {
            assert_eq!(client.run(Op::Discard { at, len }), Ok(()), "{step:?}");
            model.know(first, count, false);
        }
        What::Zero(unmap) if geometry.write_zeroes.is_some() => {
            let op = Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            };
            assert_eq!(client.run(op), Ok(()), "{step:?}");
            model.write(first, &vec![0; count]);
        }
        What::Discard | What::Zero(_) => {}
    }
}

/// Many requests in flight, on channels of several threads at once: none is lost, none ends twice, and
/// each finds its own data.
pub fn of_a_thousand_requests_are_their_own(disk: &Held) {
    const THREADS: u64 = 4;
    const REQUESTS: u64 = 1000;
    const LEN: u64 = 4096;
    let client = |thread: u64| {
        let mut client = Client::new(&***disk);
        let at = |n: u64| (n * THREADS + thread) * LEN;
        let bytes = |n: u64| pattern(at(n) + 1, 4096);
        let buffers: Vec<_> = (0..REQUESTS).map(|n| Buffer::holding(&bytes(n))).collect();
        let each = |op: fn(u64, &Buffer) -> Op| -> Vec<Op> {
            (0..)
                .zip(&buffers)
                .map(|(n, buffer)| op(at(n), buffer))
                .collect()
        };
        let all_well = vec![Ok(()); 1000];
        assert_eq!(client.run_all(&each(write)), all_well);
        for buffer in &buffers {
            buffer.fill(&[0; 4096]);
        }
        assert_eq!(client.run_all(&each(read)), all_well);
        for (n, buffer) in (0..).zip(&buffers) {
            assert!(buffer.bytes() == bytes(n), "request {n} of thread {thread}");
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || client(thread));
        }
    });
}

/// Neighbours that are written at the same time do not touch each other.
pub fn of_neighbours_stay_apart(disk: &Held) {
    let block = usize::try_from(disk.geometry().block).expect("a block is small");
    let count = 64.min((1 << 20) / block);
    thread::scope(|scope| {
        for parity in 0..2 {
            scope.spawn(move || {
                let mut client = Client::new(&***disk);
                for n in (parity..count).step_by(2) {
                    let at = (n * block) as u64;
                    let written = client.write_bytes(at, &pattern(at + 1, block));
                    assert_eq!(written, Ok(()), "block {n}");
                }
            });
        }
    });
    let bytes = Client::new(&***disk).read_bytes(0, count * block);
    for (n, seen) in bytes.chunks(block).enumerate() {
        assert!(seen == pattern((n * block) as u64 + 1, block), "block {n}");
    }
}

/// Of memory, a read changes its spans only, and a write nothing.
pub fn go_into_the_spans_and_nowhere_else(disk: &Held) {
    const LEN: usize = 256 << 10;
    let block = usize::try_from(disk.geometry().block).expect("a block is small");
    let mut client = Client::new(&***disk);
    let bytes = pattern(3, 2 * block);
    assert_eq!(client.write_bytes(0, &bytes), Ok(()));
    // Neither addresses nor lengths are whole blocks, and the later part comes first.
    let parts = [140_001..140_001 + 2 * block - 77, 33..33 + 77];
    let buffer = Buffer::parts(LEN, parts.clone());
    let mut expected = pattern(4, LEN);
    buffer.region().write(0, &expected);
    assert_eq!(client.run(read(0, &buffer)), Ok(()));
    let (first, second) = bytes.split_at(parts[0].len());
    for (part, bytes) in parts.into_iter().zip([first, second]) {
        expected[part].copy_from_slice(bytes);
    }
    let whole = || {
        let mut whole = vec![0; LEN];
        buffer.region().read(0, &mut whole);
        whole
    };
    assert!(whole() == expected, "a read went beside its spans");
    let at = 2 * block as u64;
    assert_eq!(client.run(write(at, &buffer)), Ok(()));
    assert!(whole() == expected, "a write changed what it was lent");
    assert!(
        client.read_bytes(at, 2 * block) == bytes,
        "cut in odd parts"
    );
}

/// A channel that is closed takes nothing along, and others see what it wrote.
pub fn outlive_a_channel(disk: &Held) {
    let block = usize::try_from(disk.geometry().block).expect("a block is small");
    let at = disk.geometry().bytes - block as u64;
    let mut other = Client::new(&***disk);
    for seed in 1..4 {
        let bytes = pattern(seed, block);
        assert_eq!(Client::new(&***disk).write_bytes(at, &bytes), Ok(()));
        assert!(
            other.read_bytes(at, block) == bytes,
            "another channel sees it"
        );
        disk.renew();
        let seen = Client::new(&***disk).read_bytes(at, block);
        assert!(seen == bytes, "a later channel sees it");
    }
}
