//! Which request is next: its direction, its block, its completion.

use pollux_driver::CompletionMode;

use crate::client::Ask;
use crate::latency::Direction;

/// In which order blocks are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, reads and writes each for themselves, and round again.
    Sequential,
    /// At random, others with each seed.
    Random(u64),
}

/// A sequence of requests for whole blocks. The same one in every run: what differs between two runs is not the load.
#[derive(Clone, Debug)]
#[must_use]
pub struct Pattern {
    random: fastrand::Rng,
    /// The next block to read, and to write, where one follows the other.
    next: Option<[usize; 2]>,
    blocks: usize,
    /// Percent of the requests that read.
    reads: u8,
    /// Percent of the requests that are polled.
    polled: u8,
}

impl Pattern {
    /// Polled reads of `blocks` blocks.
    pub fn new(order: Order, blocks: usize) -> Self {
        let (seed, next) = match order {
            Order::Sequential => (1, Some([0; 2])),
            Order::Random(seed) => (seed, None),
        };
        Self {
            random: fastrand::Rng::with_seed(seed),
            next,
            blocks,
            reads: 100,
            polled: 100,
        }
    }

    /// The same, where so many percent of the requests read and the others write.
    pub fn reads(self, percent: u8) -> Self {
        Self {
            reads: percent,
            ..self
        }
    }

    /// The same, where so many percent of the requests are polled and the others call-driven.
    pub fn polled(self, percent: u8) -> Self {
        Self {
            polled: percent,
            ..self
        }
    }

    /// The same with other random numbers.
    pub fn seeded(self, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, ..self }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Is any of its requests a write?
    pub fn writes(&self) -> bool {
        self.reads < 100
    }

    /// The next request, on a disk of blocks of `bytes`.
    #[inline]
    pub fn ask(&mut self, bytes: usize) -> Ask {
        let direction = self.direction();
        Ask {
            direction,
            offset: self.block(direction) as u64 * bytes as u64,
            completion: self.completion(),
        }
    }

    #[inline]
    pub(crate) fn direction(&mut self) -> Direction {
        if self.chance(self.reads) {
            Direction::Read
        } else {
            Direction::Write
        }
    }

    #[inline]
    pub(crate) fn block(&mut self, direction: Direction) -> usize {
        let Some(next) = &mut self.next else {
            return self.random.usize(..self.blocks);
        };
        let next = &mut next[direction as usize];
        let block = if *next < self.blocks { *next } else { 0 };
        *next = block + 1;
        block
    }

    /// Another `block` than was asked for was used.
    pub(crate) fn used(&mut self, direction: Direction, block: usize) {
        if let Some(next) = &mut self.next {
            next[direction as usize] = block + 1;
        }
    }

    #[inline]
    pub(crate) fn completion(&mut self) -> CompletionMode {
        if self.chance(self.polled) {
            CompletionMode::Polled
        } else {
            CompletionMode::Call
        }
    }

    #[inline]
    fn chance(&mut self, percent: u8) -> bool {
        match percent {
            0 => false,
            100 => true,
            percent => self.random.u8(..100) < percent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(pattern: &mut Pattern, count: usize) -> Vec<usize> {
        let next = || pattern.block(Direction::Read);
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn a_sequence_begins_again_at_the_end() {
        let mut pattern = Pattern::new(Order::Sequential, 4);
        assert_eq!(blocks(&mut pattern, 6), [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn reads_and_writes_of_a_mixed_sequence_go_on_each_for_itself() {
        let mut pattern = Pattern::new(Order::Sequential, 4).reads(50);
        let asks: Vec<_> = (0..100).map(|_| pattern.ask(1)).collect();
        for direction in [Direction::Read, Direction::Write] {
            let own = asks.iter().filter(|ask| ask.direction == direction);
            let offsets: Vec<_> = own.map(|ask| ask.offset).collect();
            assert!(offsets.len() > 20);
            let expected: Vec<_> = (0..4).cycle().take(offsets.len()).collect();
            assert_eq!(offsets, expected, "{direction:?}");
        }
    }

    #[test]
    fn both_mixes_are_as_asked_for() {
        let mut pattern = Pattern::new(Order::Random(1), 4).reads(30).polled(80);
        let asks: Vec<_> = (0..10_000).map(|_| pattern.ask(512)).collect();
        let count = |what: fn(&&Ask) -> bool| asks.iter().filter(what).count();
        let reads = count(|ask| ask.direction == Direction::Read);
        let polled = count(|ask| ask.completion == CompletionMode::Polled);
        assert!((2800..3200).contains(&reads), "{reads}");
        assert!((7800..8200).contains(&polled), "{polled}");
        assert!(asks.iter().all(|ask| ask.offset <= 3 * 512));
    }

    #[test]
    fn each_seed_has_blocks_of_its_own() {
        let of_seed = |seed| blocks(&mut Pattern::new(Order::Random(seed), 1 << 20), 64);
        assert_eq!(of_seed(1), of_seed(1));
        assert_ne!(of_seed(1), of_seed(2));
    }
}
