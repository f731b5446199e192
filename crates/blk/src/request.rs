//! The header that opens a request and the status byte that ends it (5.2.6).

use crate::field;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read from the disk into the driver's buffers.
    In,
    /// Write the driver's buffers to the disk.
    Out,
    /// Put what was written on stable storage.
    Flush,
    /// Tell the serial number.
    GetId,
    /// Forget ranges of the disk.
    Discard,
    /// Fill ranges of the disk with zeroes.
    WriteZeroes,
    /// A kind that Pollux does not know: it ends with [`Status::Unsupp`].
    Unknown(u32),
}

impl Kind {
    const IN: u32 = 0;
    const OUT: u32 = 1;
    const FLUSH: u32 = 4;
    const GET_ID: u32 = 8;
    const DISCARD: u32 = 11;
    const WRITE_ZEROES: u32 = 13;

    /// The kind that `type` on the wire stands for.
    #[inline]
    #[must_use]
    pub const fn parse(wire: u32) -> Self {
        match wire {
            Self::IN => Self::In,
            Self::OUT => Self::Out,
            Self::FLUSH => Self::Flush,
            Self::GET_ID => Self::GetId,
            Self::DISCARD => Self::Discard,
            Self::WRITE_ZEROES => Self::WriteZeroes,
            unknown => Self::Unknown(unknown),
        }
    }

    /// `type` on the wire.
    #[inline]
    #[must_use]
    pub const fn wire(self) -> u32 {
        match self {
            Self::In => Self::IN,
            Self::Out => Self::OUT,
            Self::Flush => Self::FLUSH,
            Self::GetId => Self::GET_ID,
            Self::Discard => Self::DISCARD,
            Self::WriteZeroes => Self::WRITE_ZEROES,
            Self::Unknown(wire) => wire,
        }
    }
}

/// What the device reads first of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What is asked for.
    pub kind: Kind,
    /// Where, in sectors of 512 bytes; means something to [`Kind::In`] and [`Kind::Out`] only.
    pub sector: u64,
}

impl RequestHeader {
    /// Its length on the wire in bytes: `type`, a reserved word, `sector`.
    pub const SIZE: usize = 16;

    /// Reads it. The reserved word, once a priority, is not read.
    #[inline]
    #[must_use]
    pub const fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            kind: Kind::parse(u32::from_le_bytes(field(bytes, 0))),
            sector: u64::from_le_bytes(field(bytes, 8)),
        }
    }

    /// Its bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&self.kind.wire().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sector.to_le_bytes());
        bytes
    }
}

/// How a request ended: the last byte the device writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Ok = 0,
    /// It failed, or was malformed.
    IoErr = 1,
    /// The device has no such request.
    Unsupp = 2,
}

impl Status {
    /// The status that `wire` stands for, if it is one.
    #[must_use]
    pub const fn parse(wire: u8) -> Option<Self> {
        match wire {
            0 => Some(Self::Ok),
            1 => Some(Self::IoErr),
            2 => Some(Self::Unsupp),
            _ => None,
        }
    }

    /// Its byte on the wire.
    #[must_use]
    pub const fn wire(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_the_specification() {
        let table = [
            (0, Kind::In),
            (1, Kind::Out),
            (4, Kind::Flush),
            (8, Kind::GetId),
            (11, Kind::Discard),
            (13, Kind::WriteZeroes),
            (14, Kind::Unknown(14)),
            (u32::MAX, Kind::Unknown(u32::MAX)),
        ];
        for (wire, kind) in table {
            assert_eq!(Kind::parse(wire), kind);
            assert_eq!(kind.wire(), wire);
        }
    }

    #[test]
    fn a_header_is_little_endian_and_its_reserved_word_ignored() {
        let bytes = [1, 0, 0, 0, 9, 9, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1];
        let header = RequestHeader::parse(&bytes);
        assert_eq!(header.kind, Kind::Out);
        assert_eq!(header.sector, 0x0102_0304_0506_0708);
        let mut sent = bytes;
        sent[4..8].fill(0);
        assert_eq!(header.to_bytes(), sent);
    }

    #[test]
    fn a_status_byte_is_one_of_three() {
        for status in [Status::Ok, Status::IoErr, Status::Unsupp] {
            assert_eq!(Status::parse(status.wire()), Some(status));
        }
        assert_eq!(Status::parse(3), None);
        assert_eq!(Status::parse(0xff), None);
    }
}
