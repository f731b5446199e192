//! Random numbers from a seed: the same seed gives the same run.

use std::ops::Range;

use fastrand::Rng;

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Rng);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// An index into something of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.0.usize(..len)
    }

    /// A number in `range`, which must not be empty.
    pub fn within(&mut self, range: Range<usize>) -> usize {
        self.0.usize(range)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// The seed of this run: `$POLLUX_TEST_SEED`, or a new one from the clock. It is printed, and the
/// test runner shows it when the test fails.
pub fn seed() -> u64 {
    let chosen = std::env::var("POLLUX_TEST_SEED")
        .ok()
        .map(|text| text.parse().expect("POLLUX_TEST_SEED is a number"));
    let seed = chosen.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |since| {
            since.as_secs() << 20 | u64::from(since.subsec_micros())
        })
    });
    println!("POLLUX_TEST_SEED={seed} repeats this run");
    seed
}
