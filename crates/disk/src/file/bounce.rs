//! Memory of our own that direct I/O can use, for requests whose memory it cannot use.

use std::ops::{Deref, DerefMut};

use pollux_memory::Span;

/// What a request is moved in pieces of: what it takes in memory, however large it is.
pub const PIECE: usize = 1 << 20;

/// Zeroes at first, at an address that is a multiple of 4096, which is as much as any storage asks.
pub struct Buffer {
    bytes: Vec<u8>,
    lead: usize,
    len: usize,
}

impl Buffer {
    const ALIGNMENT: usize = 4096;

    /// A buffer of `len` bytes, but at most a [`PIECE`].
    pub fn new(len: u64) -> Self {
        let len = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
        let bytes = vec![0; len + Self::ALIGNMENT];
        let lead = bytes.as_ptr().align_offset(Self::ALIGNMENT);
        Self { bytes, lead, len }
    }

    /// Fills itself from `spans`, which hold at least as much.
    pub fn gather(&mut self, spans: &[Span]) {
        let mut rest = &mut **self;
        for &span in spans {
            let (now, later) = rest.split_at_mut(span.len().min(rest.len()));
            span.split_at(now.len()).0.read(now);
            rest = later;
        }
    }

    /// Spreads itself over `spans`, which hold at least as much.
    pub fn scatter(&self, spans: &[Span]) {
        let mut rest = &**self;
        for &span in spans {
            let (now, later) = rest.split_at(span.len().min(rest.len()));
            span.split_at(now.len()).0.write(now);
            rest = later;
        }
    }

    /// Cuts it to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.lead..self.lead + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.lead..self.lead + self.len]
    }
}

#[cfg(test)]
mod tests {
    use pollux_memory::Region;

    use super::*;

    fn region(len: u64) -> Region {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(len).unwrap();
        Region::map(file, 0, 0, 0, len).unwrap()
    }

    #[test]
    fn a_buffer_is_aligned_and_no_larger_than_a_piece() {
        for len in [1, 512, 100_000, u64::MAX] {
            let buffer = Buffer::new(len);
            assert!(buffer.as_ptr().addr().is_multiple_of(Buffer::ALIGNMENT));
            assert_eq!(buffer.len() as u64, len.min(PIECE as u64));
        }
    }

    #[test]
    fn what_is_gathered_is_scattered_the_same_way() {
        let (from, to) = (region(100), region(100));
        let bytes: Vec<u8> = (0..100).collect();
        from.write(0, &bytes);
        let cut = |region: &Region, at| {
            #[expect(unsafe_code, reason = "as a request would lend it")]
            // SAFETY: both regions are kept until the end of the test.
            let (head, tail) = unsafe { region.span() }.split_at(at);
            [head, tail.split_at(0).0, tail]
        };
        let mut buffer = Buffer::new(80);
        buffer.gather(&cut(&from, 33));
        assert_eq!(*buffer, bytes[..80]);
        buffer.scatter(&cut(&to, 71));
        let mut seen = vec![0; 100];
        to.read(0, &mut seen);
        assert_eq!(
            (&seen[..80], &seen[80..]),
            (&bytes[..80], [0; 20].as_slice())
        );
    }
}
