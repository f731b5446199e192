//! What every disk that keeps its contents does.

use std::thread;

use pollux_disk::{Disk, Durability, Failure, Op, Unmap};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Buffer, Client, Make, pattern, read, write, zeroes};

/// All of it. The disks that `make` makes can be written.
pub fn behaves_like_a_disk(make: Make) {
    agrees_with_a_model(make);
    refuses_what_lies_beyond_its_end(&*make(1 << 20));
    carries_a_thousand_requests_of_several_threads(&*make(64 << 20));
    keeps_apart_what_touches(&*make(1 << 20));
}

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

/// As [`agrees_with_a_model`], on the one disk there is.
pub fn agrees_on_a_device(disk: &dyn Disk) {
    let mut runner = runner();
    let len = usize::try_from(BLOCKS * u64::from(disk.geometry().block)).unwrap();
    let run = |steps: Vec<Step>| {
        let mut client = Client::new(disk);
        let mut model = pattern(len as u64, len);
        client.write_bytes(0, &model).unwrap();
        for step in steps {
            follow(&mut client, disk, &mut model, &step);
        }
        assert!(client.read_bytes(0, len) == model, "the whole disk");
        Ok(())
    };
    runner.run(&steps(), run).unwrap();
    refuses_what_lies_beyond_its_end(disk);
}

fn runner() -> TestRunner {
    TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    })
}

/// Whatever is asked in whatever order, it holds what a plain array would.
fn agrees_with_a_model(make: Make) {
    let mut runner = runner();
    let run = |steps: Vec<Step>| {
        let block = make(1 << 20).geometry().block;
        let disk = make(BLOCKS * u64::from(block));
        let mut client = Client::new(&*disk);
        let mut model = vec![0; usize::try_from(disk.geometry().bytes).unwrap()];
        for step in steps {
            follow(&mut client, &*disk, &mut model, &step);
        }
        assert!(client.read_bytes(0, model.len()) == model, "the whole disk");
        Ok(())
    };
    runner.run(&steps(), run).unwrap();
}

fn follow(client: &mut Client, disk: &dyn Disk, model: &mut [u8], step: &Step) {
    let geometry = disk.geometry();
    let (at, len) = (
        step.at * u64::from(geometry.block),
        step.blocks * u64::from(geometry.block),
    );
    let first = usize::try_from(at).unwrap();
    let range = first..first + usize::try_from(len).unwrap();
    let durability = step.durability;
    let buffer = Buffer::cut(range.len(), &step.cuts);
    match step.what {
        What::Read => {
            assert_eq!(client.run(read(at, &buffer)), Ok(()));
            assert!(buffer.bytes() == model[range], "{step:?}");
        }
        What::Write => {
            model[range.clone()].copy_from_slice(&pattern(step.seed, range.len()));
            buffer.fill(&model[range]);
            let from = buffer.spans();
            let op = Op::Write {
                at,
                from,
                durability,
            };
            assert_eq!(client.run(op), Ok(()));
        }
        What::Flush => assert_eq!(client.run(Op::Flush), Ok(())),
        What::Discard => {
            let result = client.run(Op::Discard { at, len });
            match geometry.discard {
                Some(_) => {
                    assert_eq!(result, Ok(()));
                    model[range].fill(0);
                }
                None => assert_eq!(result, Err(Failure::Unsupported)),
            }
        }
        What::Zero(unmap) => {
            let op = Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            };
            assert_eq!(client.run(op), Ok(()));
            model[range].fill(0);
        }
    }
}

fn refuses_what_lies_beyond_its_end(disk: &dyn Disk) {
    let mut client = Client::new(disk);
    let block = u64::from(disk.geometry().block);
    let end = disk.geometry().bytes;
    let buffer = Buffer::new(usize::try_from(2 * block).unwrap());
    for at in [end - block, end, end + block, u64::MAX - block + 1] {
        let len = 2 * block;
        let unmap = Unmap::Allowed;
        for op in [
            read(at, &buffer),
            write(at, &buffer),
            Op::Discard { at, len },
            zeroes(at, len, unmap),
        ] {
            let result = client.run(op);
            let beyond = result == Err(Failure::OutOfRange);
            assert!(
                beyond || result == Err(Failure::Unsupported),
                "{op:?}: {result:?}"
            );
        }
    }
    assert!(client.run(read(1, &buffer)).is_err(), "not a whole block");
    assert_eq!(client.run(read(end - 2 * block, &buffer)), Ok(()));
}

/// Many requests in flight, on channels of several threads at once: none is lost, none ends twice, and
/// each finds its own data.
fn carries_a_thousand_requests_of_several_threads(disk: &dyn Disk) {
    const THREADS: u64 = 4;
    const REQUESTS: u64 = 1000;
    const LEN: u64 = 4096;
    let client = |thread: u64| {
        let mut client = Client::new(disk);
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
            scope.spawn(move || client(thread));
        }
    });
}

/// Neighbours that are written at the same time do not touch each other.
fn keeps_apart_what_touches(disk: &dyn Disk) {
    let block = usize::try_from(disk.geometry().block).unwrap();
    let count = 64;
    thread::scope(|scope| {
        for parity in 0..2 {
            scope.spawn(move || {
                let mut client = Client::new(disk);
                for n in (parity..count).step_by(2) {
                    let at = (n * block) as u64;
                    client.write_bytes(at, &pattern(at + 1, block)).unwrap();
                }
            });
        }
    });
    let bytes = Client::new(disk).read_bytes(0, count * block);
    for (n, seen) in bytes.chunks(block).enumerate() {
        assert!(seen == pattern((n * block) as u64 + 1, block), "block {n}");
    }
}
