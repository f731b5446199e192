//! Prices that no kernel has a part in.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use pollux_tests::random::Random;

use super::{Price, Processors, TIME, nanoseconds};
use crate::cell::BLOCK;
use crate::pinned::Pinned;

pub fn prices(processors: Processors) -> io::Result<Vec<Price>> {
    let _pinned = Pinned::to(processors.own)?;
    Ok(vec![
        Price::of_batches("a look at the clock", 1000, || {
            std::hint::black_box(Instant::now());
            Ok(())
        })?,
        cache_line(processors)?,
        copy()?,
    ])
}

/// A word on a cache line of its own.
#[repr(align(128))] // a pair of lines: some processors fetch two
#[derive(Default)]
struct Line(AtomicU64);

/// There and back: one thread stores, the other sees it and answers on another line.
fn cache_line(processors: Processors) -> io::Result<Price> {
    const BATCH: u64 = 1000;
    const OVER: u64 = u64::MAX;
    let (there, back) = (Line::default(), Line::default());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _pinned = Pinned::to(processors.other)?;
            let mut seen = 0;
            while seen != OVER {
                let now = there.0.load(Ordering::Acquire);
                if now == seen {
                    spin_loop();
                } else {
                    seen = now;
                    back.0.store(seen, Ordering::Release);
                }
            }
            io::Result::Ok(())
        });
        let mut number = 0;
        let round = |next: u64| {
            there.0.store(next, Ordering::Release);
            while back.0.load(Ordering::Acquire) != next {
                // A thread that could not be bound to its processor does not answer.
                if other.is_finished() {
                    return;
                }
                spin_loop();
            }
        };
        let mut measured = vec![];
        let start = Instant::now();
        while start.elapsed() < TIME && !other.is_finished() {
            let before = Instant::now();
            for _ in 0..BATCH {
                number += 1;
                round(number);
            }
            measured.push(nanoseconds(before.elapsed()) / 1000.0);
        }
        there.0.store(OVER, Ordering::Release);
        other.join().expect("it does not panic")?;
        Ok(Price::of("a cache line, there and back", &measured))
    })
}

/// From random places of what no cache holds to one place that a cache does.
fn copy() -> io::Result<Price> {
    const LARGE: usize = 256 << 20;
    let mut from = vec![0; LARGE];
    let mut random = Random::new(1);
    random.fill(&mut from);
    let mut to = [0; BLOCK];
    Price::of_batches("a copy of 4 KiB from large memory", 100, || {
        let at = random.index(LARGE / BLOCK) * BLOCK;
        to.copy_from_slice(&from[at..at + BLOCK]);
        std::hint::black_box(&mut to);
        Ok(())
    })
}
