//! The ranges that DISCARD and `WRITE_ZEROES` name, one or several a request (5.2.6).

use std::error::Error;
use std::fmt;

use crate::field;

/// One range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSegment {
    /// Where it starts, in sectors of 512 bytes.
    pub sector: u64,
    /// Its length in sectors.
    pub sectors: u32,
    /// May `WRITE_ZEROES` give the blocks back? A DISCARD that sets it ends with
    /// [`Status::Unsupp`](crate::Status::Unsupp).
    pub unmap: bool,
}

/// A segment has flags that the specification reserves. Its request ends with
/// [`Status::Unsupp`](crate::Status::Unsupp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedFlags(
    /// The flags, the known one included.
    pub u32,
);

impl fmt::Display for ReservedFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a range has reserved bits in its flags {:#x}", self.0)
    }
}

impl Error for ReservedFlags {}

impl RangeSegment {
    /// Its length on the wire in bytes: `sector`, `num_sectors`, `flags`.
    pub const SIZE: usize = 16;

    const UNMAP: u32 = 1;

    /// Reads it.
    ///
    /// # Errors
    ///
    /// When a reserved flag is set.
    pub const fn parse(bytes: &[u8; Self::SIZE]) -> Result<Self, ReservedFlags> {
        let flags = u32::from_le_bytes(field(bytes, 12));
        if flags & !Self::UNMAP != 0 {
            return Err(ReservedFlags(flags));
        }
        Ok(Self {
            sector: u64::from_le_bytes(field(bytes, 0)),
            sectors: u32::from_le_bytes(field(bytes, 8)),
            unmap: flags & Self::UNMAP != 0,
        })
    }

    /// Its bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&self.sector.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sectors.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.unmap).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_comes_back_as_it_was_sent() {
        for unmap in [false, true] {
            let sent = RangeSegment {
                sector: 0x0102_0304_0506_0708,
                sectors: 0x090a_0b0c,
                unmap,
            };
            assert_eq!(RangeSegment::parse(&sent.to_bytes()), Ok(sent));
        }
    }

    #[test]
    fn the_fields_lie_where_the_specification_puts_them() {
        let bytes = [8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0];
        let parsed = RangeSegment::parse(&bytes).unwrap();
        assert_eq!((parsed.sector, parsed.sectors), (8, 16));
        assert!(parsed.unmap);
    }

    #[test]
    fn a_reserved_flag_is_refused() {
        let mut bytes = [0; RangeSegment::SIZE];
        bytes[12] = 3;
        assert_eq!(RangeSegment::parse(&bytes), Err(ReservedFlags(3)));
        bytes[12..].copy_from_slice(&[0, 0, 0, 0x80]);
        assert_eq!(RangeSegment::parse(&bytes), Err(ReservedFlags(0x8000_0000)));
    }
}
