//! A descriptor chain, walked once: what the device end hands over (VIRTIO 1.3, 2.7.4 and 2.7.5).
//!
//! The walk reads each descriptor once and keeps what it found as spans. Nothing looks at the
//! peer's descriptors again, so a peer that changes them afterwards changes nothing.

use pollux_memory::{Memory, Span};

use crate::descriptor::{Descriptor, DescriptorFlags};
use crate::fault::PeerFault;
use crate::wire::Head;

/// The most descriptors one indirect table may have: a header, a status and 1024 segments. The
/// specification bounds a chain by the ring's size, which drivers with indirect tables ignore.
pub const MAX_CHAIN: u32 = 1026;

/// The most spans of one chain. Each buffer may cross from one region of memory into the next, as a driver's do once
/// in a while; all of them over hundreds of regions would be half a million.
const MAX_SPANS: usize = 2 * MAX_CHAIN as usize;

/// Room for so many spans is kept: 126 segments, a header and a status.
const KEPT_SPANS: usize = 128;

/// The buffers of one chain: a readable part, then a writable one.
///
/// Reused from request to request, so that in the steady state no walk allocates. What a device takes
/// off either end (a header, a status byte) is gone from the parts.
#[derive(Debug)]
pub struct Chain {
    head: Head,
    spans: Vec<Span>,
    /// `spans[first..middle]` is the readable part, `spans[middle..last]` the writable one.
    first: usize,
    middle: usize,
    last: usize,
    crossings: usize,
    /// Steps of the walk that left no span.
    unseen: usize,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            head: Head(0),
            spans: Vec::new(),
            first: 0,
            middle: 0,
            last: 0,
            crossings: 0,
            unseen: 0,
        }
    }
}

impl Chain {
    /// The descriptor it starts at.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// What the device may read.
    #[must_use]
    pub fn readable(&self) -> &[Span] {
        &self.spans[self.first..self.middle]
    }

    /// What the device may write.
    #[must_use]
    pub fn writable(&self) -> &[Span] {
        &self.spans[self.middle..self.last]
    }

    /// How many spans there are more than buffers: one for each time that a buffer crosses from one
    /// region of memory into the next.
    #[must_use]
    pub fn crossings(&self) -> usize {
        self.crossings
    }

    /// How many steps the walk took: one for each span and each descriptor of no bytes, and those of copying an indirect
    /// table.
    #[inline]
    #[must_use]
    pub fn steps(&self) -> usize {
        self.spans.len() + self.unseen
    }

    /// Gives back the room that an unusually long chain took, with what is in it.
    #[inline]
    pub fn shrink(&mut self) {
        if self.spans.len() > KEPT_SPANS {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        (self.first, self.middle, self.last) = (0, 0, 0);
        self.spans.clear();
        self.spans.shrink_to(KEPT_SPANS);
    }

    /// Reads `N` bytes off the front of the readable part, however they are spread over descriptors,
    /// or none if it is shorter.
    #[inline]
    pub fn take_front<const N: usize>(&mut self) -> Option<[u8; N]> {
        let span = *self.readable().first()?;
        if span.len() >= N {
            let bytes = span.load(0);
            if span.len() == N {
                self.first += 1;
            } else {
                self.spans[self.first] = span.split_at(N).1;
            }
            return Some(bytes);
        }
        self.gather()
    }

    #[cold]
    fn gather<const N: usize>(&mut self) -> Option<[u8; N]> {
        let there: usize = self.readable().iter().map(|span| span.len()).sum();
        if there < N {
            return None;
        }
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let span = self.spans[self.first];
            let (here, rest) = span.split_at(span.len().min(N - filled));
            here.read(&mut bytes[filled..filled + here.len()]);
            filled += here.len();
            if rest.is_empty() {
                self.first += 1;
            } else {
                self.spans[self.first] = rest;
            }
        }
        Some(bytes)
    }

    /// Takes the last byte off the writable part, if it has one.
    #[inline]
    pub fn take_last_byte(&mut self) -> Option<Span> {
        let span = *self.writable().last()?;
        let (rest, byte) = span.split_at(span.len() - 1);
        if rest.is_empty() {
            self.last -= 1;
        } else {
            self.spans[self.last - 1] = rest;
        }
        Some(byte)
    }

    /// Walks the chain that starts at `head` of the table `descriptors`.
    ///
    /// # Safety
    ///
    /// `memory`, or another table that shares its regions, is kept until the chain's spans are used no more.
    #[inline]
    pub(crate) unsafe fn walk(
        &mut self,
        head: Head,
        descriptors: Span,
        indirect: bool,
        memory: &Memory,
    ) -> Result<(), PeerFault> {
        // Empty until the walk is through: a chain that turns out broken has no parts.
        self.spans.clear();
        (self.first, self.middle, self.last) = (0, 0, 0);
        self.head = head;
        let mut walk = Walk {
            head: head.0,
            memory,
            spans: &mut self.spans,
            readable: None,
            crossings: 0,
            unseen: 0,
        };
        if let Some((address, bytes)) = walk.piece(descriptors, head.0, indirect)? {
            walk.indirect(address, bytes)?;
        }
        let (readable, crossings, unseen) = (walk.readable, walk.crossings, walk.unseen);
        (self.crossings, self.unseen) = (crossings, unseen);
        self.last = self.spans.len();
        self.middle = readable.unwrap_or(self.last);
        Ok(())
    }
}

/// A walk under way.
struct Walk<'a> {
    head: u16,
    /// Kept as long as the chain's spans are used, as the caller of [`Chain::walk`] has promised.
    memory: &'a Memory,
    spans: &'a mut Vec<Span>,
    /// How many spans are readable, once the first writable one has been seen.
    readable: Option<usize>,
    crossings: usize,
    unseen: usize,
}

impl Walk<'_> {
    /// Walks the table of `len` descriptors, which `get` reads, from `next`. A descriptor for another
    /// table, which ends this one, is returned where `indirect` ones may be.
    #[inline]
    fn table(
        &mut self,
        len: u32,
        get: impl Fn(u16) -> Descriptor,
        mut next: u16,
        indirect: bool,
    ) -> Result<Option<(u64, u32)>, PeerFault> {
        let head = self.head;
        for _ in 0..len {
            if u32::from(next) >= len {
                return Err(PeerFault::NextOutOfRange { head, next, len });
            }
            let descriptor = get(next);
            let flags = descriptor.flags;
            if flags.has(DescriptorFlags::INDIRECT) {
                if !indirect || flags.has(DescriptorFlags::NEXT) {
                    return Err(PeerFault::IndirectMisplaced { head });
                }
                return Ok(Some((descriptor.address, descriptor.len)));
            }
            self.buffer(descriptor)?;
            if !flags.has(DescriptorFlags::NEXT) {
                return Ok(None);
            }
            next = descriptor.next;
        }
        Err(PeerFault::ChainLoop { head })
    }

    #[inline]
    fn buffer(
        &mut self,
        Descriptor {
            address,
            len,
            flags,
            ..
        }: Descriptor,
    ) -> Result<(), PeerFault> {
        match (flags.has(DescriptorFlags::WRITE), self.readable) {
            (true, None) => self.readable = Some(self.spans.len()),
            (false, Some(_)) => return Err(PeerFault::ReadableAfterWritable { head: self.head }),
            _ => {}
        }
        if len == 0 {
            self.unseen += 1;
            return Ok(());
        }
        let before = self.spans.len();
        // SAFETY: by the promise made to `Chain::walk`.
        if unsafe {
            self.memory
                .spans(address, len, |span| self.spans.push(span))
        } {
            let all = self.spans.len();
            self.crossings += all - before - 1;
            if all > MAX_SPANS {
                return Err(PeerFault::Scattered { head: self.head });
            }
            Ok(())
        } else {
            Err(PeerFault::OutsideMemory {
                head: self.head,
                address,
                len,
            })
        }
    }

    /// Walks a table that is in one piece: the ring's own, and every sane indirect one.
    #[inline]
    fn piece(
        &mut self,
        table: Span,
        next: u16,
        indirect: bool,
    ) -> Result<Option<(u64, u32)>, PeerFault> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a ring or an indirect table is far below 2^32 bytes"
        )]
        let len = (table.len() / Descriptor::SIZE) as u32;
        let get = |at| Descriptor::parse(table.load(usize::from(at) * Descriptor::SIZE));
        self.table(len, get, next, indirect)
    }

    /// Walks the indirect table of `bytes` bytes at `address`, which ends the chain.
    #[inline]
    fn indirect(&mut self, address: u64, bytes: u32) -> Result<(), PeerFault> {
        let head = self.head;
        let len = bytes / 16;
        if !bytes.is_multiple_of(16) || len == 0 || len > MAX_CHAIN {
            return Err(PeerFault::IndirectLength { head, bytes });
        }
        // SAFETY: used while the table is borrowed, and no longer.
        let another = match unsafe { self.memory.span(address, u64::from(bytes)) } {
            Some(table) => self.piece(table, 0, false)?,
            None => self.crossing(address, bytes)?,
        };
        match another {
            None => Ok(()),
            Some(_) => Err(PeerFault::IndirectMisplaced { head }),
        }
    }

    /// Walks an indirect table that crosses from one region of memory into the next: copies it first,
    /// so that here, too, each descriptor is read once.
    #[cold]
    fn crossing(&mut self, address: u64, bytes: u32) -> Result<Option<(u64, u32)>, PeerFault> {
        let mut copy = vec![0; bytes as usize];
        let (mut filled, mut pieces) = (0, 0);
        let fill = |span: Span| {
            span.read(&mut copy[filled..filled + span.len()]);
            filled += span.len();
            pieces += 1;
        };
        // SAFETY: used while the table is borrowed, and no longer.
        let whole = unsafe { self.memory.spans(address, bytes, fill) };
        if !whole {
            return Err(PeerFault::OutsideMemory {
                head: self.head,
                address,
                len: bytes,
            });
        }
        let (descriptors, _) = copy.as_chunks();
        self.unseen += pieces.max(descriptors.len());
        let get = |at| Descriptor::parse(descriptors[usize::from(at)]);
        self.table(bytes / 16, get, 0, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_room_of_usual_chains_is_kept() {
        let mut chain = Chain::default();
        for (spans, kept) in [(3, 3), (KEPT_SPANS, KEPT_SPANS), (MAX_SPANS, 0), (3, 3)] {
            chain.spans.clear();
            chain.spans.resize(spans, Span::EMPTY);
            chain.last = spans;
            chain.shrink();
            assert!(chain.spans.capacity() <= KEPT_SPANS);
            assert_eq!(chain.writable().len(), kept);
        }
    }
}
