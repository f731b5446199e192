//! Tables and zeroes in a file.

use std::fs;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use crate::file::fill;
use crate::qcow2::header::field64;

/// What differs is written in pieces of this size.
const PIECE: usize = 4096;

/// The entries of a table; behind the end of the file they are zero.
pub fn entries(file: &fs::File, at: u64, bytes: u64) -> io::Result<Vec<u64>> {
    let mut table = vec![0; usize::try_from(bytes).expect("within the bounds of a header")];
    read_or_zero(file, &mut table, at)?;
    Ok((0..table.len() / 8)
        .filter_map(|entry| field64(&table, entry * 8))
        .collect())
}

/// What `entries` refer to, in order.
pub fn host_offsets(entries: Vec<u64>, mask: u64) -> Vec<u64> {
    let mut offsets: Vec<u64> = entries.into_iter().map(|entry| entry & mask).collect();
    offsets.retain(|offset| *offset != 0);
    offsets.sort_unstable();
    offsets
}

/// What an entry of 8 bytes refers to.
pub fn host_offset(entry: &[u8], mask: u64) -> Option<u64> {
    field64(entry, 0)
        .map(|entry| entry & mask)
        .filter(|at| *at != 0)
}

/// `offsets` with one more.
pub fn joined(mut offsets: Vec<u64>, more: u64) -> Vec<u64> {
    if let Err(at) = offsets.binary_search(&more) {
        offsets.insert(at, more);
    }
    offsets
}

/// Reads; what is behind the end of the file is zero.
pub fn read_or_zero(file: &fs::File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut read = 0;
    while read < bytes.len() {
        match fill(file, &mut bytes[read..], at + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes[read..].fill(0);
    Ok(())
}

/// Writes all of `bytes`.
pub fn write_all(file: &fs::File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Writes the pieces of `new` that differ from `old`.
pub fn write_changed(file: &fs::File, old: &[u8], new: &[u8], at: u64) -> io::Result<()> {
    let pieces = old.chunks(PIECE).zip(new.chunks(PIECE));
    for (number, (_, piece)) in pieces.enumerate().filter(|(_, (old, new))| old != new) {
        write_all(file, piece, at + (number * PIECE) as u64)?;
    }
    Ok(())
}

/// Makes a range read as zeroes, and keeps its blocks where the file system can.
///
/// A block device says BUSY where its page cache has what is not written yet, and INVAL for parts of its sectors.
pub fn zero(file: &fs::File, at: u64, len: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::ZERO_RANGE, at, len)) {
        Err(Errno::OPNOTSUPP | Errno::BUSY | Errno::INVAL) => write_zeroes(file, at, len),
        result => Ok(result?),
    }
}

fn write_zeroes(file: &fs::File, at: u64, len: u64) -> io::Result<()> {
    let zeroes = vec![0; 1 << 16];
    let mut done = 0;
    while done < len {
        let now = (len - done).min(zeroes.len() as u64);
        let now = usize::try_from(now).expect("a piece");
        write_all(file, &zeroes[..now], at + done)?;
        done += now as u64;
    }
    Ok(())
}
