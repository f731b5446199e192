//! Prices that no kernel has a part in.

use std::io;
use std::time::Instant;

use super::{Price, TIME};
use crate::cell::BLOCK;
use crate::pinned::Pinned;
use crate::round_trip::{Processors, round_trips};

pub fn prices(processors: Processors) -> io::Result<Vec<Price>> {
    let _pinned = Pinned::to(processors.own)?;
    Ok(vec![
        Price::of_batches("reading the clock", 1000, || {
            std::hint::black_box(Instant::now());
            Ok(())
        })?,
        Price::of(
            "a cache line, there and back",
            &round_trips(processors, TIME, 1000)?,
        ),
        copy()?,
    ])
}

/// From random places of what no cache holds to one place that a cache does.
fn copy() -> io::Result<Price> {
    const LARGE: usize = 256 << 20;
    let mut from = vec![0; LARGE];
    let mut random = fastrand::Rng::with_seed(1);
    random.fill(&mut from);
    let mut to = [0; BLOCK];
    Price::of_batches("a copy of 4 KiB from large memory", 100, || {
        let at = random.usize(..LARGE / BLOCK) * BLOCK;
        to.copy_from_slice(&from[at..at + BLOCK]);
        std::hint::black_box(&mut to);
        Ok(())
    })
}
