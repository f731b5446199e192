//! What a chain is made of.

use pollux_ring::MAX_CHAIN;

use super::Model;
use crate::chain::memory::{Ring, SEAM, place};

/// A stretch of memory of one region: an address, a length.
pub type Piece = (u64, u64);

/// The buffers of a chain, cut where regions meet.
#[derive(Default)]
pub struct Chain {
    pub readable: Vec<Piece>,
    pub writable: Vec<Piece>,
    /// Has any buffer been writable, an empty one included?
    pub has_writable: bool,
    /// How often a buffer was cut.
    pub cuts: usize,
    /// How many descriptors had no bytes, and how many a table has that is cut.
    pub unseen: usize,
}

pub struct Broken;

impl Model {
    /// The chain that starts at `head`.
    pub fn walk(&mut self, ring: &Ring, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain::default();
        let size = self.size();
        let mut next = head;
        for _ in 0..size {
            if next >= size {
                return Err(Broken);
            }
            let descriptor = ring.descriptor(next).into();
            match chain.add(descriptor)? {
                More::No => return Ok(chain),
                More::At(at) => next = at,
                More::Table { at, bytes, last } => {
                    if !self.setup.indirect || !last {
                        return Err(Broken);
                    }
                    self.walk_table(&mut chain, at, bytes)?;
                    return Ok(chain);
                }
            }
        }
        Err(Broken)
    }

    fn walk_table(&mut self, chain: &mut Chain, at: u64, bytes: u32) -> Result<(), Broken> {
        let len = bytes / 16;
        if !bytes.is_multiple_of(16) || len == 0 || len > MAX_CHAIN || !is_memory(at, bytes) {
            return Err(Broken);
        }
        if at < SEAM && SEAM - at < u64::from(bytes) {
            chain.unseen += len.max(2) as usize;
        }
        let mut next = 0;
        for _ in 0..len {
            if u32::from(next) >= len {
                return Err(Broken);
            }
            let from = at + 16 * u64::from(next);
            let descriptor: [u8; 16] = self.load(from..=u64::MAX).expect("it is memory");
            match chain.add(descriptor.into())? {
                More::No => return Ok(()),
                More::At(at) => next = at,
                More::Table { .. } => return Err(Broken),
            }
        }
        Err(Broken)
    }
}

/// A descriptor.
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl From<[u8; 16]> for Descriptor {
    fn from(bytes: [u8; 16]) -> Self {
        let part = |at: usize| {
            let part = bytes[at..at + 4].try_into();
            u32::from_le_bytes(part.expect("four bytes"))
        };
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            address: u64::from(part(0)) | u64::from(part(4)) << 32,
            len: part(8),
            flags: half(12),
            next: half(14),
        }
    }
}

/// What follows a descriptor.
enum More {
    No,
    At(u16),
    Table { at: u64, bytes: u32, last: bool },
}

impl Chain {
    fn add(&mut self, descriptor: Descriptor) -> Result<More, Broken> {
        let Descriptor {
            address,
            len,
            flags,
            next,
        } = descriptor;
        let (goes_on, writable, table) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        if table {
            let (at, bytes, last) = (address, len, !goes_on);
            return Ok(More::Table { at, bytes, last });
        }
        self.buffer(address, len, writable)?;
        Ok(if goes_on { More::At(next) } else { More::No })
    }

    fn buffer(&mut self, address: u64, len: u32, writable: bool) -> Result<(), Broken> {
        if !writable && self.has_writable {
            return Err(Broken);
        }
        self.has_writable |= writable;
        if len == 0 {
            self.unseen += 1;
            return Ok(());
        }
        if !is_memory(address, len) {
            return Err(Broken);
        }
        let to = if writable {
            &mut self.writable
        } else {
            &mut self.readable
        };
        let len = u64::from(len);
        if address < SEAM && SEAM - address < len {
            to.push((address, SEAM - address));
            to.push((SEAM, len - (SEAM - address)));
            self.cuts += 1;
        } else {
            to.push((address, len));
        }
        Ok(())
    }

    pub fn take_last_byte(&mut self) -> Option<u64> {
        let (address, len) = self.writable.pop()?;
        if len > 1 {
            self.writable.push((address, len - 1));
        }
        Some(address + (len - 1))
    }
}

/// Memory has two stretches without a gap, so the ends tell.
fn is_memory(address: u64, len: u32) -> bool {
    let Some(last) = address.checked_add(u64::from(len) - 1) else {
        return false;
    };
    let ends = place(address).zip(place(last));
    ends.is_some_and(|(from, to)| (to - from) as u64 == u64::from(len) - 1)
}

pub fn addresses(pieces: &[Piece]) -> impl Iterator<Item = u64> {
    pieces.iter().flat_map(|(at, len)| *at..at + len)
}

pub fn without_front(pieces: &[Piece], mut bytes: u64) -> Vec<Piece> {
    let mut rest = Vec::new();
    for (at, len) in pieces {
        let gone = bytes.min(*len);
        bytes -= gone;
        if gone < *len {
            rest.push((at + gone, len - gone));
        }
    }
    rest
}
