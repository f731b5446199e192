//! The wire format of virtio-blk as plain data (VIRTIO 1.2 and 1.3, section 5.2).
//!
//! Every structure is turned into bytes and back by name and offset, little-endian, and never by
//! laying a Rust struct over memory: a peer can write anything there, padding included.
#![forbid(unsafe_code)]

mod config;
pub mod feature;
mod range;
mod request;

pub use config::{Cache, Config, DiscardLimits, Topology, WriteZeroesLimits};
pub use range::{RangeSegment, ReservedFlags};
pub use request::{Kind, RequestHeader, Status};

/// Bytes in a sector, the unit of every position and length on the wire, whatever the block size.
pub const SECTOR: u64 = 512;

/// Bytes in the answer to `GET_ID`: the serial number, padded with zeroes. One that fills them all has
/// no zero at its end.
pub const SERIAL_BYTES: usize = 20;

/// `serial` as `GET_ID` answers it: cut after [`SERIAL_BYTES`], or padded with zeroes.
#[must_use]
pub fn serial(serial: &str) -> [u8; SERIAL_BYTES] {
    let mut bytes = [0; SERIAL_BYTES];
    let kept = serial.len().min(SERIAL_BYTES);
    bytes[..kept].copy_from_slice(&serial.as_bytes()[..kept]);
    bytes
}

/// The `N` bytes at `at`; for offsets that are constants of this crate.
const fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes
        .split_at(at)
        .1
        .first_chunk()
        .expect("every field lies inside its structure")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_is_cut_or_padded_to_twenty_bytes() {
        assert_eq!(&serial("disk-7")[..8], b"disk-7\0\0");
        assert_eq!(&serial("0123456789abcdefghijklm"), b"0123456789abcdefghij");
    }
}
