//! Reference counts on the storage are never lower than those in use, whatever is lost with the power: a count that is
//! too high leaks a cluster, one that is too low has it given away twice.
//!
//! So an increase is written at once, with a *reserve* of free clusters beyond it, which makes the next allocations
//! cost nothing; a decrease is held back until what referred to the cluster is known to be gone ([`Block::settled`]).

use std::ops::Range;

/// How many clusters are reserved at once: as much leaks at most when the power fails.
const RESERVE: usize = 256;

/// A refcount block of which the storage does not hold what it is to hold in the end.
#[derive(Debug)]
pub struct Block {
    /// What the storage holds.
    stored: Vec<u8>,
    /// What is in use.
    wanted: Vec<u8>,
    /// Clusters that are counted on the storage and not in use.
    reserved: Range<usize>,
    order: u32,
}

impl Block {
    /// One of which the storage holds `stored`, with counts of 2 to the power of `order` bits.
    pub fn new(stored: Vec<u8>, order: u32) -> Self {
        Self {
            wanted: stored.clone(),
            stored,
            reserved: 0..0,
            order,
        }
    }

    /// What is in use.
    pub fn wanted(&self) -> &[u8] {
        &self.wanted
    }

    /// What the storage holds.
    pub fn stored(&self) -> &[u8] {
        &self.stored
    }

    /// `wanted` is in use from now on. What the storage has to hold before anything refers to it, if that is more than
    /// it holds, and how many clusters of this block that covers.
    pub fn want(&mut self, wanted: &[u8]) -> Option<(Vec<u8>, usize)> {
        self.wanted.copy_from_slice(wanted);
        let mut high = highest(&self.stored, &self.wanted, self.order)?;
        let count = count(self.wanted.len(), self.order);
        let used = (0..count)
            .rfind(|&cluster| get(&self.wanted, self.order, cluster) > 0)
            .map_or(0, |last| last + 1);
        self.reserved = used..(used + RESERVE).min(count);
        self.reserve(&mut high);
        Some((high, self.reserved.end))
    }

    /// What the storage may hold now that nothing refers any more to what is not in use. With `closing`, no reserve.
    pub fn settled(&mut self, closing: bool) -> Vec<u8> {
        if closing {
            self.reserved = 0..0;
        }
        let mut settled = self.wanted.clone();
        self.reserve(&mut settled);
        settled
    }

    /// The storage holds `bytes`.
    pub fn has_stored(&mut self, bytes: Vec<u8>) {
        self.stored = bytes;
    }

    /// Does the storage hold what is in use, and nothing else?
    pub fn is_settled(&self) -> bool {
        self.stored == self.wanted
    }

    fn reserve(&self, counts: &mut [u8]) {
        for cluster in self.reserved.clone() {
            if get(counts, self.order, cluster) == 0 {
                set_one(counts, self.order, cluster);
            }
        }
    }
}

/// Of each count the higher one, if `wanted` has one that is.
fn highest(stored: &[u8], wanted: &[u8], order: u32) -> Option<Vec<u8>> {
    // Most of a block is the same, and is passed over in such pieces.
    const PIECE: usize = 256;
    let mut high = None;
    for (piece, (old, new)) in stored.chunks(PIECE).zip(wanted.chunks(PIECE)).enumerate() {
        if old == new {
            continue;
        }
        for within in 0..count(old.len(), order) {
            if get(new, order, within) > get(old, order, within) {
                let high = high.get_or_insert_with(|| stored.to_vec());
                copy(new, &mut high[piece * PIECE..][..old.len()], order, within);
            }
        }
    }
    high
}

/// How many counts `bytes` hold.
pub const fn count(bytes: usize, order: u32) -> usize {
    (bytes * 8) >> order
}

/// A count: bits from the least significant of a byte on, or whole bytes from the most significant on.
pub fn get(bytes: &[u8], order: u32, at: usize) -> u64 {
    if order < 3 {
        let (byte, shift, mask) = bits(order, at);
        return u64::from((bytes[byte] >> shift) & mask);
    }
    let width = 1 << (order - 3);
    let bytes = &bytes[at * width..][..width];
    bytes
        .iter()
        .fold(0, |count, byte| count << 8 | u64::from(*byte))
}

fn bits(order: u32, at: usize) -> (usize, usize, u8) {
    let width = 1 << order;
    let mask = (1u8 << width) - 1;
    (at * width / 8, at * width % 8, mask)
}

/// Makes a count one.
pub fn set_one(bytes: &mut [u8], order: u32, at: usize) {
    if order < 3 {
        let (byte, shift, mask) = bits(order, at);
        bytes[byte] = bytes[byte] & !(mask << shift) | 1 << shift;
    } else {
        let width = 1 << (order - 3);
        let bytes = &mut bytes[at * width..][..width];
        bytes.fill(0);
        bytes[width - 1] = 1;
    }
}

fn copy(from: &[u8], to: &mut [u8], order: u32, at: usize) {
    if order < 3 {
        let (byte, shift, mask) = bits(order, at);
        let mask = mask << shift;
        to[byte] = to[byte] & !mask | from[byte] & mask;
    } else {
        let width = 1 << (order - 3);
        to[at * width..][..width].copy_from_slice(&from[at * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(order: u32, values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        for (at, value) in values.iter().enumerate() {
            if *value > 0 {
                set_one(&mut bytes, order, at);
            }
        }
        bytes
    }

    proptest! {
        /// What is in use is always counted on the storage, before and after it is told so.
        #[test]
        fn the_storage_never_counts_less_than_is_in_use(
            order in 0u32..=6,
            rounds in prop::collection::vec((prop::collection::vec(0u8..=1, 64), any::<bool>()), 1..20)
        ) {
            let mut block = Block::new(vec![0; 512], order);
            for (values, settle) in rounds {
                let wanted = counts(order, &values);
                if let Some((high, _)) = block.want(&wanted) {
                    for at in 0..count(512, order) {
                        prop_assert!(get(&high, order, at) >= get(block.stored(), order, at));
                    }
                    block.has_stored(high);
                }
                for at in 0..count(512, order) {
                    prop_assert!(get(block.stored(), order, at) >= get(&wanted, order, at));
                }
                if settle {
                    let settled = block.settled(false);
                    block.has_stored(settled);
                }
            }
            let last = block.settled(true);
            prop_assert_eq!(&last, block.wanted());
        }
    }

    #[test]
    fn an_allocation_from_the_reserve_writes_nothing() {
        let used = |clusters| {
            let mut counts = vec![0; 65536];
            (0..clusters).for_each(|cluster| set_one(&mut counts, 4, cluster));
            counts
        };
        let mut block = Block::new(vec![0; 65536], 4);
        let (high, covered) = block.want(&used(3)).expect("three more");
        assert_eq!(covered, 3 + RESERVE);
        block.has_stored(high);
        assert_eq!(block.want(&used(4)), None);
        assert_eq!(block.want(&used(3 + RESERVE)), None);
    }
}
