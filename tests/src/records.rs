//! Numbered records, by which what a disk lost shows.
//!
//! A record is a block that says which write it is and where it belongs, and whose every byte follows
//! from that. A test writes records to places chosen at random, notes which of them a completed flush
//! covers, and later asks [`Expected::check`] whether each place holds the record that it must hold at
//! least. So a lost write, an old one and half a one are all seen.

use std::collections::BTreeMap;
use std::fmt;

use fastrand::Rng;

/// Bytes of a record.
pub const RECORD: usize = 4096;

/// A record's place on the disk, in records.
pub type Place = u64;

const MAGIC: u64 = u64::from_le_bytes(*b"polluxre");
const HEADER: usize = 4 * 8;

/// Which write a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The run it belongs to.
    pub seed: u64,
    /// Where it belongs.
    pub place: Place,
    /// Its number among the writes to this part of the disk, from 1 on.
    pub sequence: u64,
}

impl Record {
    /// The block that says all this.
    pub fn encode(self) -> [u8; RECORD] {
        let Self {
            seed,
            place,
            sequence,
        } = self;
        let mut block = [0; RECORD];
        let words = [MAGIC, seed, place, sequence];
        for (bytes, word) in block.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut noise = Rng::with_seed(seed ^ place.rotate_left(20) ^ sequence.rotate_left(40));
        noise.fill(&mut block[HEADER..]);
        block
    }

    /// The record that begins with `header`, whatever follows; none if that is no record's.
    pub fn from_header(header: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let bytes = header[8 * index..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let record = Self {
            seed: word(1),
            place: word(2),
            sequence: word(3),
        };
        (word(0) == MAGIC).then_some(record)
    }

    /// The record that is all of `block`.
    pub fn decode(block: &[u8]) -> Option<Self> {
        Self::from_header(block).filter(|record| record.encode() == block)
    }
}

/// One writer's part of the disk, and the order of its writes: the same for whoever knows the seed.
#[derive(Clone, Debug)]
pub struct Job {
    seed: u64,
    first: Place,
    places: u64,
    random: Rng,
    sequence: u64,
}

impl Job {
    /// The writer number `index` of those that have `places` each.
    pub fn new(seed: u64, index: u64, places: u64) -> Self {
        Self {
            seed,
            first: index * places,
            places,
            random: Rng::with_seed(seed.wrapping_add(index)),
            sequence: 0,
        }
    }

    /// The next write.
    pub fn next_record(&mut self) -> Record {
        self.sequence += 1;
        Record {
            seed: self.seed,
            place: self.first + self.random.u64(..self.places),
            sequence: self.sequence,
        }
    }
}

/// What must be on the disk.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    seed: u64,
    /// The least sequence number of each place that has one.
    least: BTreeMap<Place, u64>,
}

/// A place that does not hold what it must.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    place: Place,
    least: u64,
    found: Found,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Zeroes,
    Neither,
    Record(Record),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            least,
            found,
        } = self;
        write!(
            f,
            "place {place} must hold its write {least} or a later one, and holds {found:?}"
        )
    }
}

impl std::error::Error for Lost {}

impl Expected {
    /// Nothing yet, in the run of `seed`.
    pub const fn new(seed: u64) -> Self {
        let least = BTreeMap::new();
        Self { seed, least }
    }

    /// What the program `records` says on a guest's `console` about the `disk` that `jobs` write to.
    pub fn told(console: &str, disk: &str, seed: u64, jobs: u64, places: u64) -> Self {
        let mut expected = Self::new(seed);
        for job in 0..jobs {
            let prefix = format!("guest: covered {disk} {job} ");
            let reports = console
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix));
            let writes = reports.filter_map(|number| number.parse().ok()).max();
            expected.cover_first(writes.unwrap_or(0), Job::new(seed, job, places));
        }
        expected
    }

    /// `record` is durable from now on.
    pub fn cover(&mut self, record: Record) {
        let least = self.least.entry(record.place).or_default();
        *least = record.sequence.max(*least);
    }

    /// The first `writes` of `job` are durable.
    pub fn cover_first(&mut self, writes: u64, mut job: Job) {
        for _ in 0..writes {
            self.cover(job.next_record());
        }
    }

    /// The record that its place holds at least, if anything is known of it.
    pub fn least(&self, place: Place) -> Option<Record> {
        let sequence = *self.least.get(&place)?;
        let seed = self.seed;
        Some(Record {
            seed,
            place,
            sequence,
        })
    }

    /// How many places something is known of.
    pub fn places(&self) -> usize {
        self.least.len()
    }

    /// Looks at every record of `disk`: each is what it must be or a later write to its place, and where
    /// nothing must be, there may be nothing.
    ///
    /// # Errors
    /// The first place that holds something else.
    pub fn check(&self, disk: &[u8]) -> Result<(), Lost> {
        for (place, block) in (0..).zip(disk.chunks(RECORD)) {
            let least = self.least.get(&place).copied().unwrap_or(0);
            let found = if block.iter().all(|&byte| byte == 0) {
                Found::Zeroes
            } else {
                Record::decode(block).map_or(Found::Neither, Found::Record)
            };
            let good = match &found {
                Found::Zeroes => least == 0,
                Found::Neither => false,
                Found::Record(record) => {
                    record.seed == self.seed && record.place == place && record.sequence >= least
                }
            };
            if !good {
                return Err(Lost {
                    place,
                    least,
                    found,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    /// A disk on which `job` has made its first `writes`.
    fn disk_after(writes: u64, mut job: Job) -> Vec<u8> {
        let mut disk = vec![0; 16 * RECORD];
        for _ in 0..writes {
            let record = job.next_record();
            let at = usize::try_from(record.place).expect("a small disk") * RECORD;
            disk[at..at + RECORD].copy_from_slice(&record.encode());
        }
        disk
    }

    fn expected(writes: u64) -> Expected {
        let mut expected = Expected::new(SEED);
        expected.cover_first(writes, Job::new(SEED, 0, 16));
        expected
    }

    #[test]
    fn what_was_covered_or_a_later_write_is_right() {
        for later in [0, 1, 50] {
            let disk = disk_after(100 + later, Job::new(SEED, 0, 16));
            assert_eq!(expected(100).check(&disk), Ok(()));
        }
    }

    #[test]
    fn one_lost_write_is_found() {
        let disk = disk_after(99, Job::new(SEED, 0, 16));
        assert_eq!(expected(99).check(&disk), Ok(()));
        expected(100).check(&disk).expect_err("the last is missing");
    }

    #[test]
    fn half_a_write_and_a_misplaced_one_are_found() {
        let good = disk_after(200, Job::new(SEED, 0, 16));
        let mut torn = good.clone();
        torn[5 * RECORD + 512..6 * RECORD].fill(0);
        assert_eq!(
            expected(1).check(&torn).map_err(|lost| lost.found),
            Err(Found::Neither)
        );
        let mut moved = good;
        moved.copy_within(2 * RECORD..3 * RECORD, 3 * RECORD);
        expected(1).check(&moved).expect_err("place 3 holds 2's");
    }
}
