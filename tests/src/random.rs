//! A small deterministic generator: the same seed gives the same run, on every machine.
//!
//! Tests print their seed when they fail; the benchmark wants one that costs next to nothing.

use std::ops::Range;

/// `SplitMix64` (Steele, Lea and Flood, 2014): one addition and two multiplications a number.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by the high half of a product: no division.
    #[allow(clippy::cast_possible_truncation)] // the high half of a 128-bit product fits in 64 bits
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// An index into something of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// A number in `range`, which must not be empty.
    pub fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.index(range.end - range.start)
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
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
