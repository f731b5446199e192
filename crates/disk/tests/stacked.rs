//! Stacked disks are disks, lie where device-mapper would have them lie, and end every request once.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use common::tmpfs;
use pollux_disk::stack::{Layout, Stack, Stretch, Target, table};
use pollux_disk::{Disk, Failure, Geometry, Memory, Options, PollScope, Spec, linear, striped};
use pollux_disk_conformance::{Buffer, Client, behaves_like_a_disk, pattern, write};
use proptest::prelude::*;
use rustix::io::Errno;

const SCOPES: [PollScope; 2] = [PollScope::OwnInFlight, PollScope::EveryQueue];

fn memory(bytes: u64) -> Arc<dyn Disk> {
    Arc::new(Memory::new(Geometry::plain(bytes)).unwrap())
}

fn open(spec: &str) -> Arc<dyn Disk> {
    let spec: Spec = spec.parse().unwrap();
    spec.open(&Options::default()).unwrap()
}

/// Chunks of 4 KiB over three legs.
fn three(bytes: u64, leg: impl Fn(u64) -> Arc<dyn Disk>) -> Stack {
    let each = bytes.div_ceil(3).next_multiple_of(4096);
    let legs = (0..3).map(|_| leg(each)).collect();
    striped(4096, legs, PollScope::default()).unwrap()
}

/// The expectations know the size that they asked for, so what is more is cut off.
fn cut(disk: Arc<dyn Disk>, bytes: u64) -> Arc<dyn Disk> {
    let layout = Layout::Linear(Stretch { leg: 0, at: 0 });
    let target = Target {
        start: 0,
        len: bytes,
        layout,
    };
    Arc::new(table(vec![target], vec![disk], PollScope::default()).unwrap())
}

#[test]
fn a_striped_disk_behaves() {
    behaves_like_a_disk(&|bytes| cut(Arc::new(three(bytes, memory)), bytes));
}

#[test]
fn a_linear_disk_behaves_in_either_scope() {
    for scope in SCOPES {
        behaves_like_a_disk(&|bytes| {
            let legs = vec![memory(4096), memory(512), memory(bytes - 4608)];
            Arc::new(linear(legs, scope).unwrap())
        });
    }
}

#[test]
fn nested_and_over_slow_legs_it_behaves() {
    behaves_like_a_disk(&|bytes| {
        let slow = |bytes| open(&format!("fault:delay=0us-100us,on=memory:size={bytes}"));
        let inner: Arc<dyn Disk> = Arc::new(three(bytes / 2, slow));
        let half = inner.geometry().bytes;
        let rest = memory(bytes.saturating_sub(half).next_multiple_of(512).max(512));
        cut(
            Arc::new(linear(vec![inner, rest], PollScope::default()).unwrap()),
            bytes,
        )
    });
}

#[test]
fn over_files_it_behaves() {
    let folder = tmpfs().unwrap_or_else(|| tempfile::TempDir::new().unwrap());
    for engine in ["threads", "auto"] {
        behaves_like_a_disk(&|bytes| {
            let mut number = 0;
            let legs = (0..3).map(|_| {
                number += 1;
                let path = folder.path().join(format!("leg{number}"));
                let leg = std::fs::File::create(&path).unwrap();
                leg.set_len(bytes).unwrap();
                open(&format!(
                    "file:path={},engine={engine},inline=off",
                    path.display()
                ))
            });
            let stack = striped(512, legs.collect(), PollScope::default()).unwrap();
            cut(Arc::new(stack), bytes)
        });
    }
}

/// More pieces on a leg than a system call takes.
#[test]
fn a_request_may_have_thousands_of_chunks() {
    let folder = tempfile::TempDir::new().unwrap();
    let leg = |name: &str| {
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        open(&format!("file:path={}", path.display()))
    };
    let disk = striped(512, vec![leg("a"), leg("b")], PollScope::default()).unwrap();
    let mut client = Client::new(&disk);
    let bytes = pattern(7, 4 << 20);
    client.write_bytes(512, &bytes).unwrap();
    assert!(client.read_bytes(512, bytes.len()) == bytes);
}

/// Where device-mapper's documentation puts a byte.
fn place(targets: &[Target], at: u64) -> (usize, u64) {
    let target = targets.iter().rfind(|target| target.start <= at).unwrap();
    let at = at - target.start;
    match &target.layout {
        Layout::Linear(stretch) => (stretch.leg, stretch.at + at),
        Layout::Striped { chunk, stripes } => {
            let (number, count) = (at / chunk, stripes.len() as u64);
            let stripe = stripes[usize::try_from(number % count).unwrap()];
            (stripe.leg, stripe.at + number / count * chunk + at % chunk)
        }
    }
}

/// Tables whose targets lie apart from each other on three legs of a megabyte.
fn tables(sectors: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Target>> {
    let part = (
        sectors,
        any::<bool>(),
        0u32..4,
        prop::sample::subsequence(vec![0usize, 1, 2], 1..=3),
    );
    prop::collection::vec(part, 1..5).prop_map(|parts| {
        let (mut start, mut used) = (0, [0u64; 3]);
        let targets = parts.into_iter().map(|(sectors, lines, shift, legs)| {
            let (len, chunk) = (sectors * 512, 512u64 << shift);
            let stretch = |leg: usize| Stretch {
                leg,
                at: used[leg] + 512,
            };
            let layout = if lines {
                Layout::Linear(stretch(legs[0]))
            } else {
                let stripes = legs.iter().map(|leg| stretch(*leg)).collect();
                Layout::Striped { chunk, stripes }
            };
            used = used.map(|used| used + len + 8192);
            let target = Target { start, len, layout };
            start += len;
            target
        });
        targets.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_byte_lands_where_device_mapper_would_put_it(
        outer in tables(1..60),
        inner in tables(100..400),
        cuts in prop::collection::vec(0usize..100_000, 0..6),
        seed in any::<u64>()
    ) {
        // A stack whose second leg is a stack of its own.
        let low: Vec<_> = (0..3).map(|_| memory(1 << 20)).collect();
        let high: Vec<_> = (0..2).map(|_| memory(1 << 20)).collect();
        let inside: Arc<dyn Disk> = Arc::new(table(inner.clone(), low.clone(), PollScope::default()).unwrap());
        let room = inside.geometry().bytes;
        let legs = vec![Arc::clone(&high[0]), inside, Arc::clone(&high[1])];
        let needed = outer.iter().map(|target| target.start + target.len).max().unwrap();
        let Ok(disk) = table(outer.clone(), legs, PollScope::default()) else {
            // The inner one is smaller than the table asks for: refused, and not cut short.
            prop_assert!(room < 1 << 20);
            return Ok(());
        };
        let len = usize::try_from(needed).unwrap();
        let bytes = pattern(seed, len);
        let buffer = Buffer::cut(len, &cuts);
        buffer.fill(&bytes);
        prop_assert_eq!(Client::new(&disk).run(write(0, &buffer)), Ok(()));
        let all = |disk: &Arc<dyn Disk>| Client::new(&**disk).read_bytes(0, 1 << 20);
        let (low, high): (Vec<_>, Vec<_>) = (low.iter().map(all).collect(), high.iter().map(all).collect());
        for (at, byte) in (0..).zip(&bytes) {
            let there = match place(&outer, at) {
                (1, at) => { let (leg, at) = place(&inner, at); &low[leg][usize::try_from(at).unwrap()] }
                (leg, at) => &high[leg / 2][usize::try_from(at).unwrap()],
            };
            prop_assert_eq!(there, byte, "byte {}", at);
        }
        prop_assert!(Client::new(&disk).read_bytes(0, len) == bytes);
    }
}

/// Many threads, legs of different speed, one that fails now and then: every request ends once, and what did not
/// fail is there.
#[test]
fn nothing_is_lost_completed_twice_or_stuck_at_any_depth() {
    let legs = vec![
        open("fault:delay=0us-300us,on=memory:size=16M"),
        open("fault:seed=3,error=EIO,chance=5%,on=memory:size=16M"),
        open("memory:size=16M"),
    ];
    let disk = striped(4096, legs, PollScope::default()).unwrap();
    std::thread::scope(|scope| {
        for (thread, depth) in (0u64..).zip([1usize, 16, 512, 4096]) {
            let disk = &disk;
            scope.spawn(move || {
                let bytes = pattern(thread + 1, 12 << 10);
                let buffers: Vec<_> = (0..depth).map(|_| Buffer::holding(&bytes)).collect();
                let mut client = Client::new(disk);
                let at = |n: u64| (thread * 4096 + n % 1024) * 12 * 1024 % (47 << 20) / 4096 * 4096;
                for _ in 0..(4096 / depth).min(40) {
                    let ops: Vec<_> = (0..)
                        .zip(&buffers)
                        .map(|(n, buffer)| write(at(n), buffer))
                        .collect();
                    let results = client.run_all(&ops);
                    assert_eq!(results.len(), depth);
                    let known = [Ok(()), Err(Failure::Io(Errno::IO))];
                    assert!(results.iter().all(|result| known.contains(result)));
                }
            });
        }
    });
}
