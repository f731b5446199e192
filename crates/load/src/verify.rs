//! What a verified block holds, and which block has to hold what.
//!
//! A checksum alone finds a corrupt block, but neither one that is *stale* nor one that belongs
//! *elsewhere*: both are whole. So each block says where it belongs and which write it is, and the
//! job that wrote it remembers that.

use std::fmt;

/// Begins every verified block.
const MAGIC: [u8; 8] = *b"pollux\0\x01";
/// Where the checksum lies, behind the words of the [`Stamp`].
const CRC: usize = 32;
/// The bytes before the filling: a block is larger.
const HEADER: usize = 36;

/// What a buffer holds before a verified read, so that what the read does not transfer is not taken for what was
/// written from there before.
pub const UNTOUCHED: u8 = 0xee;

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Where on the disk it belongs.
    pub offset: u64,
    /// Which of its job's writes it is; from 1.
    pub sequence: u64,
    /// Of the run that wrote it: blocks of an earlier run are not taken for this one's.
    pub seed: u64,
}

/// A block that does not hold what was written there last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--verify: the block at offset {} is not what was written there last (write {}): {found}",
    expected.offset,
    expected.sequence
)]
pub struct Mismatch {
    expected: Stamp,
    found: Found,
}

/// What was there instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Untouched,
    Zeroes,
    NoHeader([u8; 8]),
    OtherRun { seed: u64 },
    Misplaced { offset: u64, sequence: u64 },
    Stale { sequence: u64 },
    Corrupt { expected: u32, found: u32 },
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched => write!(f, "the read has transferred nothing"),
            Self::Zeroes => write!(f, "found zeroes"),
            Self::NoHeader(bytes) => write!(
                f,
                "found no header, but {:#018x}",
                u64::from_be_bytes(*bytes)
            ),
            Self::OtherRun { seed } => write!(f, "found a block of another run (seed {seed:#x})"),
            Self::Misplaced { offset, sequence } => {
                write!(f, "found write {sequence} of offset {offset}")
            }
            Self::Stale { sequence } => write!(f, "found a stale block, write {sequence}"),
            Self::Corrupt { expected, found } => write!(
                f,
                "its header is right, but its crc32c is {found:#010x} where {expected:#010x} is expected"
            ),
        }
    }
}

impl Stamp {
    /// Fills `block` with what this write is to store.
    pub fn fill(&self, block: &mut [u8]) {
        // Different bytes in every write, so that a part of an older one cannot pass for them.
        let mix = self.seed ^ self.offset.rotate_left(32) ^ self.sequence;
        fastrand::Rng::with_seed(mix).fill(&mut block[HEADER..]);
        block[..8].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&self.offset.to_le_bytes());
        block[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        block[24..CRC].copy_from_slice(&self.seed.to_le_bytes());
        let crc = checksum(block);
        block[CRC..HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    /// Is `block` what this write stored?
    pub fn check(&self, block: &[u8]) -> Result<(), Mismatch> {
        let word = |at: usize| block[at..].first_chunk().copied().expect("a header fits");
        let stamp = Self {
            offset: u64::from_le_bytes(word(8)),
            sequence: u64::from_le_bytes(word(16)),
            seed: u64::from_le_bytes(word(24)),
        };
        let crc = block[CRC..].first_chunk().copied();
        let expected = u32::from_le_bytes(crc.expect("a header fits"));
        let found = if word(0) != MAGIC {
            let all = |wanted| block.iter().all(|&byte| byte == wanted);
            if all(0) {
                Found::Zeroes
            } else if all(UNTOUCHED) {
                Found::Untouched
            } else {
                Found::NoHeader(word(0))
            }
        } else if stamp.seed != self.seed {
            Found::OtherRun { seed: stamp.seed }
        } else if stamp.offset != self.offset {
            Found::Misplaced {
                offset: stamp.offset,
                sequence: stamp.sequence,
            }
        } else if stamp.sequence != self.sequence {
            Found::Stale {
                sequence: stamp.sequence,
            }
        } else {
            let found = checksum(block);
            if found == expected {
                return Ok(());
            }
            Found::Corrupt { expected, found }
        };
        Err(Mismatch {
            expected: *self,
            found,
        })
    }
}

/// Of all but the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..CRC]), &block[HEADER..])
}

/// A request for the block is in flight.
const BUSY: u64 = 1 << 63;

/// What each block of a job's region has to hold.
///
/// A block has one request in flight at most: what a read returns that overlaps a write in flight,
/// cannot be said.
#[derive(Debug)]
pub struct Model {
    /// The write that each block holds, 0 where this run has written nothing, and [`BUSY`].
    blocks: Vec<u64>,
    writes: u64,
}

impl Model {
    /// Nothing has been written to any of `blocks` blocks.
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![0; blocks],
            writes: 0,
        }
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The first block from `block` on, round the end, without a request in flight: it has one now.
    /// `None` when there is no such block.
    pub fn claim(&mut self, block: usize) -> Option<usize> {
        let (before, from) = self.blocks.split_at(block);
        let free = |state: &u64| state & BUSY == 0;
        let behind = || from.iter().position(free).map(|at| block + at);
        let found = behind().or_else(|| before.iter().position(free))?;
        self.blocks[found] |= BUSY;
        Some(found)
    }

    /// The number of the next write.
    pub fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// Which write `block` holds, if this run has written it.
    pub fn holds(&self, block: usize) -> Option<u64> {
        Some(self.blocks[block] & !BUSY).filter(|&sequence| sequence > 0)
    }

    /// The request for `block` has ended, a write with that number if it was one.
    pub fn release(&mut self, block: usize, written: Option<u64>) {
        let now = written.unwrap_or(self.blocks[block]);
        self.blocks[block] = now & !BUSY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        offset: 8192,
        sequence: 7,
        seed: 0xfeed,
    };

    fn block(stamp: Stamp) -> Vec<u8> {
        let mut block = vec![0; 512];
        stamp.fill(&mut block);
        block
    }

    fn complaint(block: &[u8]) -> String {
        STAMP.check(block).unwrap_err().to_string()
    }

    #[test]
    fn a_block_holds_what_was_filled_in() {
        assert_eq!(STAMP.check(&block(STAMP)), Ok(()));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for bit in 0..512 * 8 {
            let mut block = block(STAMP);
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(STAMP.check(&block).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_complaint_says_what_is_there_instead() {
        let table = [
            (vec![0; 512], "found zeroes"),
            (vec![UNTOUCHED; 512], "the read has transferred nothing"),
            (vec![0xab; 512], "found no header, but 0xabababab"),
            (
                block(Stamp {
                    sequence: 6,
                    ..STAMP
                }),
                "found a stale block, write 6",
            ),
            (
                block(Stamp {
                    offset: 4096,
                    ..STAMP
                }),
                "found write 7 of offset 4096",
            ),
            (
                block(Stamp { seed: 1, ..STAMP }),
                "found a block of another run (seed 0x1)",
            ),
        ];
        for (block, words) in table {
            let complaint = complaint(&block);
            assert!(complaint.contains(words), "{complaint}");
            assert!(
                complaint.contains("the block at offset 8192"),
                "{complaint}"
            );
        }
    }

    #[test]
    fn a_torn_write_is_found_by_its_checksum() {
        let mut torn = block(Stamp {
            sequence: 6,
            ..STAMP
        });
        torn[..256].copy_from_slice(&block(STAMP)[..256]);
        let complaint = complaint(&torn);
        assert!(complaint.contains("its header is right"), "{complaint}");
    }

    #[test]
    fn a_block_in_flight_is_not_claimed_again() {
        let mut model = Model::new(3);
        assert_eq!(model.claim(2), Some(2));
        assert_eq!(model.claim(2), Some(0));
        assert_eq!(model.claim(0), Some(1));
        assert_eq!(model.claim(1), None);
        model.release(0, None);
        assert_eq!(model.claim(1), Some(0));
    }

    #[test]
    fn the_model_knows_the_last_write_once_it_has_ended() {
        let mut model = Model::new(2);
        let (first, second) = (model.next_write(), model.next_write());
        assert_eq!(model.claim(1), Some(1));
        assert_eq!(model.holds(1), None);
        model.release(1, Some(first));
        assert_eq!(model.holds(1), Some(first));
        assert_eq!(model.claim(1), Some(1));
        assert_eq!(model.holds(1), Some(first));
        model.release(1, Some(second));
        assert_eq!(model.holds(1), Some(second));
        assert_eq!(model.claim(1), Some(1));
        model.release(1, None);
        assert_eq!(model.holds(1), Some(second));
        assert_eq!(model.holds(0), None);
    }
}
