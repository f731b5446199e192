//! What a part of a disk must read as, kept beside the real one.
//!
//! Only *discard* leaves a choice (VIRTIO 1.3, 5.2.6.2): a discarded sector may keep its data or read
//! as zeroes, until the next read settles which.

use std::fmt;
use std::ops::Range;

/// Bytes in a sector, the unit of every request whatever the block size.
pub const SECTOR: usize = 512;

/// The expected contents of one range of a disk.
pub struct Model {
    start: u64,
    bytes: Vec<u8>,
    /// One a sector: has it been discarded since it was last written or read?
    discarded: Vec<bool>,
}

/// The first byte that read differently.
#[derive(Debug)]
pub struct Mismatch {
    offset: u64,
    expected: u8,
    found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            expected,
            found,
        } = self;
        write!(
            f,
            "byte {offset:#x} of the disk reads {found:#04x} and should be {expected:#04x}"
        )
    }
}

impl Model {
    /// A model of `range`, whole sectors that read as zeroes.
    pub fn zeroed(range: &Range<u64>) -> Self {
        let len = usize::try_from(range.end - range.start).expect("a model fits in memory");
        Self {
            start: range.start,
            bytes: vec![0; len],
            discarded: vec![false; len / SECTOR],
        }
    }

    /// The range of the disk that is modelled.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    fn local(&self, offset: u64, len: usize) -> Range<usize> {
        let from = usize::try_from(offset - self.start).expect("inside the model");
        from..from + len
    }

    fn sectors(range: &Range<usize>) -> Range<usize> {
        range.start / SECTOR..range.end / SECTOR
    }

    /// `data` is written at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let range = self.local(offset, data.len());
        self.discarded[Self::sectors(&range)].fill(false);
        self.bytes[range].copy_from_slice(data);
    }

    /// `len` bytes at `offset` become zeroes.
    pub fn zero(&mut self, offset: u64, len: usize) {
        let range = self.local(offset, len);
        self.discarded[Self::sectors(&range)].fill(false);
        self.bytes[range].fill(0);
    }

    /// `len` bytes at `offset` are discarded.
    pub fn discard(&mut self, offset: u64, len: usize) {
        let range = self.local(offset, len);
        self.discarded[Self::sectors(&range)].fill(true);
    }

    /// Compares what was read at `offset`.
    ///
    /// # Errors
    /// When a byte is not what was last written, and not a zero that a discard allows.
    pub fn check(&mut self, offset: u64, found: &[u8]) -> Result<(), Mismatch> {
        let range = self.local(offset, found.len());
        for sector in Self::sectors(&range) {
            if std::mem::take(&mut self.discarded[sector]) {
                let from = sector * SECTOR;
                let read = &found[from - range.start..][..SECTOR];
                if read.iter().all(|byte| *byte == 0) {
                    self.bytes[from..from + SECTOR].fill(0);
                }
            }
        }
        let expected = &self.bytes[range];
        if expected == found {
            return Ok(());
        }
        let mut pairs = expected.iter().zip(found).zip(offset..);
        let ((expected, found), offset) = pairs.find(|((a, b), _)| a != b).expect("they differ");
        Err(Mismatch {
            offset,
            expected: *expected,
            found: *found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_named() {
        let mut model = Model::zeroed(&(0x1000..0x2000));
        model.write(0x1200, &[7; SECTOR]);
        let mut found = [7; SECTOR];
        model.check(0x1200, &found).unwrap();
        found[3] = 8;
        let mismatch = model.check(0x1200, &found).unwrap_err();
        assert_eq!(
            (mismatch.offset, mismatch.expected, mismatch.found),
            (0x1203, 7, 8)
        );
    }

    #[test]
    fn a_discarded_sector_is_old_or_zero_and_then_settled() {
        let mut model = Model::zeroed(&(0..0x1000));
        model.write(0, &[7; 2 * SECTOR]);
        model.discard(0, 2 * SECTOR);
        let mut found = [7; 2 * SECTOR];
        found[..SECTOR].fill(0);
        model.check(0, &found).unwrap();
        found[..SECTOR].fill(7);
        assert!(
            model.check(0, &found).is_err(),
            "what once read as zeroes stays so"
        );
        model.discard(0, SECTOR);
        found[..SECTOR].fill(0);
        found[5] = 1;
        assert!(
            model.check(0, &found).is_err(),
            "half a sector of zeroes is neither"
        );
    }
}
