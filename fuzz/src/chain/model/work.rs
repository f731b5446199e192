//! What the disk is to do for a request, and what it does.

use pollux_blk::Status;
use pollux_device::fuzzing::SingleQueue;

use super::walk::{Chain, Piece, addresses, without_front};
use super::{Model, small};
use crate::chain::disk::DISCARDED;
use crate::chain::{DISK, RANGE, SERIAL};

pub enum Work {
    Read { at: usize, into: Vec<u64> },
    Write { at: usize, from: Vec<u64> },
    Zero { at: usize, len: usize, unmap: bool },
    Discard { at: usize, len: usize },
    Flush,
}

impl Work {
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { from, .. } => from.len(),
            Self::Zero { len, .. } | Self::Discard { len, .. } => *len,
            Self::Flush => 0,
        };
        bytes as u64
    }
}

impl Model {
    /// What the disk is to do.
    pub fn work(&mut self, chain: &Chain, number: usize) -> Result<Vec<Work>, Status> {
        let mut readable = addresses(&chain.readable);
        let header: [u8; 16] = self.load(readable.by_ref()).ok_or(Status::IoErr)?;
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let read_only = self.setup.read_only;
        match kind {
            0 => {
                let (at, bytes) = self.data(&chain.writable, chain.cuts, sector)?;
                self.requests[number].written = bytes;
                let into = addresses(&chain.writable).collect();
                Ok(Vec::from_iter(
                    (bytes > 0).then_some(Work::Read { at, into }),
                ))
            }
            1 if read_only => Err(Status::IoErr),
            1 => {
                let data = without_front(&chain.readable, 16);
                let (at, bytes) = self.data(&data, chain.cuts, sector)?;
                let from = readable.collect();
                Ok(Vec::from_iter(
                    (bytes > 0).then_some(Work::Write { at, from }),
                ))
            }
            4 => Ok(vec![Work::Flush]),
            8 => {
                let serial = pollux_blk::serial(SERIAL);
                for (to, byte) in addresses(&chain.writable).zip(serial) {
                    *self.byte(to) = byte;
                    self.requests[number].written += 1;
                }
                Ok(Vec::new())
            }
            11 | 13 => self.ranges(readable, kind == 11),
            _ => Err(Status::Unsupp),
        }
    }

    /// Where on the disk data lies, and its length.
    fn data(&self, pieces: &[Piece], cuts: usize, sector: u64) -> Result<(usize, u32), Status> {
        let segments = pieces.len().saturating_sub(cuts);
        let most = self.setup.seg_max().unwrap_or(SingleQueue::SEG_MAX);
        if segments > most as usize {
            return Err(Status::IoErr);
        }
        let longest = self.setup.size_max().map(u64::from);
        if pieces
            .iter()
            .any(|(_, len)| longest.is_some_and(|longest| *len > longest))
        {
            return Err(Status::IoErr);
        }
        let bytes: u64 = pieces.iter().map(|(_, len)| len).sum();
        let at = u128::from(sector) * 512;
        if !bytes.is_multiple_of(512) || at + u128::from(bytes) > u128::from(DISK) {
            return Err(Status::IoErr);
        }
        Ok((
            small(at),
            u32::try_from(bytes).expect("less than the disk holds"),
        ))
    }

    fn ranges(
        &mut self,
        from: impl Iterator<Item = u64>,
        discard: bool,
    ) -> Result<Vec<Work>, Status> {
        if self.setup.read_only {
            return Err(Status::IoErr);
        }
        if !self.setup.discard {
            return Err(Status::Unsupp);
        }
        let from: Vec<u64> = from.collect();
        let mut work = Vec::new();
        let (whole, rest) = from.as_chunks::<16>();
        for place in whole {
            let bytes: [u8; 16] = self.load(*place).expect("sixteen bytes");
            let all = u128::from_le_bytes(bytes);
            let (sector, sectors, flags) = (
                all & u128::from(u64::MAX),
                all >> 64 & 0xffff_ffff,
                all >> 96,
            );
            if flags > 1 || (flags == 1 && discard) {
                return Err(Status::Unsupp);
            }
            let (at, len) = (sector * 512, sectors * 512);
            let most = SingleQueue::MAX_RANGES as usize;
            if work.len() == most || len > u128::from(RANGE) || at + len > u128::from(DISK) {
                return Err(Status::IoErr);
            }
            let (at, len) = (small(at), small(len));
            let unmap = flags == 1;
            work.push(if discard {
                Work::Discard { at, len }
            } else {
                Work::Zero { at, len, unmap }
            });
        }
        if work.is_empty() || !rest.is_empty() {
            return Err(Status::IoErr);
        }
        Ok(work)
    }

    pub fn carry_out(&mut self, work: &Work) {
        match work {
            Work::Read { at, into } => {
                for (at, to) in (*at..).zip(into) {
                    *self.byte(*to) = self.disk[at];
                }
            }
            Work::Write { at, from } => {
                for (at, from) in (*at..).zip(from) {
                    self.disk[at] = *self.byte(*from);
                    self.allocated[at / 512] = true;
                }
            }
            Work::Zero { at, len, unmap } => {
                for at in *at..*at + *len {
                    self.disk[at] = 0;
                    self.allocated[at / 512] = !unmap;
                }
            }
            Work::Discard { at, len } => {
                for at in *at..*at + *len {
                    self.disk[at] = DISCARDED;
                    self.allocated[at / 512] = false;
                }
            }
            Work::Flush => {}
        }
    }
}
