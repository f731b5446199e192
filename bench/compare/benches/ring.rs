//! Take, stage and publish at the device's end: ours and `virtio-queue`'s, on memory of the same kind.
//!
//! `ring/take_stage_publish/<batch>/<kind>[/<regions>]/<who>`: the time of one turn, that is of `batch`
//! chains of three descriptors (header, 4 KiB, status), their buffers resolved to memory, handed back and
//! published. The driver refills the ring between the timed stretches. `pollux_recorded` also keeps an
//! in-flight record; that is what a request pays where a frontend asks for one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use pollux_compare::{Device, Guest, Kind, Part, Pollux, RING, Recorded, VirtioQueue};

const BATCHES: [u16; 2] = [1, 32];
const KINDS: [(Kind, &str); 2] = [(Kind::Direct, "direct"), (Kind::Indirect, "indirect")];
const REGIONS: [u16; 2] = [1, 3];

/// All that a driver or a request could see of a device's work.
#[derive(Debug, PartialEq)]
struct Seen {
    /// Of each chain its head, and what is readable and writable.
    chains: Vec<(u16, Marks, Marks)>,
    calls: Vec<bool>,
    used: Vec<u8>,
}

/// Of each buffer its first byte, and its length.
type Marks = Vec<(u8, usize)>;

fn see<D: Device>(kind: Kind, regions: u16, batch: u16) -> Seen {
    let mut guest = Guest::new(kind, regions);
    let mut device = D::open(&guest);
    let mut chains = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..300 {
        guest.offer(batch);
        let look = |parts: &[D::Part]| parts.iter().map(look_at).collect();
        calls.push(device.turn(batch, |head, readable, writable| {
            chains.push((head, look(readable), look(writable)));
        }));
    }
    Seen {
        chains,
        calls,
        used: guest.used(),
    }
}

/// The first byte of a part, and its length.
fn look_at<P: Part>(part: &P) -> (u8, usize) {
    let (at, len) = part.place();
    // SAFETY: the device found the part in a mapping that lives as long as the device, and no one else
    // uses that memory.
    (unsafe { at.read_volatile() }, len)
}

fn time<D: Device>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    case: &str,
    kind: Kind,
    regions: u16,
    batch: u16,
) {
    let mut guest = Guest::new(kind, regions);
    let mut device = D::open(&guest);
    group.bench_function(format!("{case}/{}", D::NAME), |bencher| {
        bencher.iter_custom(|turns| {
            let mut left = turns;
            let mut spent = Duration::ZERO;
            while left > 0 {
                let now = left.min(u64::from(RING / batch));
                guest.offer(u16::try_from(now).expect("at most a ring") * batch);
                let start = Instant::now();
                for _ in 0..now {
                    black_box(device.turn(batch, |head, readable, writable| {
                        black_box((head, readable, writable));
                    }));
                }
                spent += start.elapsed();
                left -= now;
            }
            spent
        });
    });
}

fn take_stage_publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring/take_stage_publish");
    for batch in BATCHES {
        for (kind, name) in KINDS {
            for regions in REGIONS {
                assert_eq!(
                    see::<Pollux>(kind, regions, batch),
                    see::<VirtioQueue>(kind, regions, batch)
                );
                let case = match regions {
                    1 => format!("{batch}/{name}"),
                    _ => format!("{batch}/{name}/{regions}_regions"),
                };
                time::<Pollux>(&mut group, &case, kind, regions, batch);
                time::<VirtioQueue>(&mut group, &case, kind, regions, batch);
                if regions == 1 {
                    assert_eq!(
                        see::<Recorded>(kind, regions, batch),
                        see::<Pollux>(kind, regions, batch)
                    );
                    time::<Recorded>(&mut group, &case, kind, regions, batch);
                }
            }
        }
    }
    group.finish();
}

criterion_group!(benches, take_stage_publish);
criterion_main!(benches);
