//! The log of dirty pages: which pages of a guest's memory its device has written, for the process that copies
//! that memory to another machine while both go on (vhost-user, "Migration").
//!
//! A bit for each page of 4096 bytes, bit 0 of byte 0 for the page at guest-physical address 0, in memory
//! that the frontend shares and clears as it copies.

use std::fs::File;
use std::sync::Arc;

use crate::{Alarm, MapError, Region, Span};

/// The bytes that one bit stands for, whatever the pages of guest and host.
const PAGE: u64 = 4096;
/// The bytes that one byte of the log stands for.
const BYTE: u64 = 8 * PAGE;

/// A log that a frontend shares.
#[derive(Debug)]
pub struct DirtyPages {
    /// Its mapping. Nobody ever addresses it: it is no memory of a guest's.
    region: Region,
}

impl DirtyPages {
    /// Maps the `len` bytes of `file` at `offset`.
    ///
    /// # Errors
    ///
    /// When there are none, they wrap, are more than the file has, or cannot be mapped.
    pub fn map(file: File, offset: u64, len: u64) -> Result<Self, MapError> {
        let region = Region::of_peer(file, offset, 0, 0, len)?;
        Ok(Self { region })
    }

    /// The same log, which rings `alarm` when its memory is lost.
    #[must_use]
    pub fn with_alarm(self, alarm: Arc<Alarm>) -> Self {
        let region = self.region.with_alarm(alarm);
        Self { region }
    }

    /// One past the last guest-physical address that it has a bit for.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.region.len().saturating_mul(BYTE)
    }

    /// Logs that the `len` bytes at guest-physical `address` were written. What it has no bit for is not
    /// logged: see [`DirtyPages::end`].
    ///
    /// To be called after the bytes were written, by whomever. The frontend clears a bit and then copies the
    /// page: either it sees this bit, and with it the bytes (the release of [`Span::set_bits`]), or it
    /// clears first, and the bit stays for its next round. Logged before they were written, the bit could
    /// be cleared and the page copied without them. For the same reason a bit that is set already is set
    /// again: to see it set tells nothing of what the frontend is about to do.
    pub fn mark(&self, address: u64, len: u64) {
        let Some(last) = len.checked_sub(1) else {
            return;
        };
        // SAFETY: `self` is borrowed until this returns, and by then the span is used no more.
        let log = unsafe { self.region.span() };
        let (first, last) = (address / PAGE, address.saturating_add(last) / PAGE);
        let end = (last / 8).min(self.region.len() - 1);
        for byte in first / 8..=end {
            let below = if byte == first / 8 { first % 8 } else { 0 };
            let above = if byte == last / 8 { 7 - last % 8 } else { 0 };
            set(log, byte, (0xff << below) & (0xff >> above));
        }
    }
}

fn set(log: Span, byte: u64, mask: u8) {
    let at = usize::try_from(byte).expect("less than the length of a mapping");
    log.set_bits(at, mask);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const OFFSET: u64 = 0x800;
    const LEN: u64 = 16;

    struct Log {
        pages: DirtyPages,
        file: File,
    }

    impl Log {
        fn new() -> Self {
            let file = tempfile::tempfile_in("/dev/shm").unwrap();
            file.set_len(0x2000).unwrap();
            let pages = DirtyPages::map(file.try_clone().unwrap(), OFFSET, LEN).unwrap();
            Self { pages, file }
        }

        /// The pages that are logged; nothing around the log has changed.
        fn marked(&self) -> Vec<u64> {
            let mut bytes = vec![0; 0x2000];
            self.file.read_exact_at(&mut bytes, 0).unwrap();
            let log = usize::try_from(OFFSET).unwrap()..usize::try_from(OFFSET + LEN).unwrap();
            let marked = |page: &u64| {
                let byte = usize::try_from(page / 8).unwrap();
                bytes[log.clone()][byte] & 1 << (page % 8) != 0
            };
            let pages = (0..8 * LEN).filter(marked).collect();
            bytes[log].fill(0);
            assert!(bytes.iter().all(|byte| *byte == 0), "beside the log");
            pages
        }
    }

    #[test]
    fn every_page_that_was_touched_is_logged_and_no_other() {
        for (address, len, pages) in [
            (0, 0, 0..0),
            (0, 1, 0..1),
            (4095, 1, 0..1),
            (4095, 2, 0..2),
            (4096, 4096, 1..2),
            (4096, 4097, 1..3),
            (7 * 4096, 2 * 4096, 7..9),
            (3 * 4096 + 5, 40 * 4096, 3..44),
            (0, 128 * 4096, 0..128),
            (127 * 4096, 4096, 127..128),
        ] {
            let log = Log::new();
            log.pages.mark(address, len);
            assert_eq!(log.marked(), pages.collect::<Vec<_>>(), "{address}+{len}");
        }
    }

    #[test]
    fn what_it_has_no_bit_for_is_left_out() {
        let log = Log::new();
        assert_eq!(log.pages.end(), 128 * 4096);
        log.pages.mark(128 * 4096, 1);
        log.pages.mark(u64::MAX, 1);
        log.pages.mark(u64::MAX - 5, u64::MAX);
        assert_eq!(log.marked(), [] as [u64; 0]);
        log.pages.mark(127 * 4096, u64::MAX);
        assert_eq!(log.marked(), [127]);
    }

    #[test]
    fn a_bit_that_is_set_stays() {
        let log = Log::new();
        log.pages.mark(0, 1);
        log.pages.mark(4096, 1);
        log.pages.mark(0, 1);
        assert_eq!(log.marked(), [0, 1]);
    }

    #[test]
    fn a_log_that_cannot_be_is_refused() {
        let file = || {
            let file = tempfile::tempfile_in("/dev/shm").unwrap();
            file.set_len(4096).unwrap();
            file
        };
        for (offset, len) in [(0, 0), (0, 4097), (4095, 2), (4096, 1)] {
            DirtyPages::map(file(), offset, len).unwrap_err();
        }
        DirtyPages::map(file(), u64::MAX, 2).unwrap_err();
        DirtyPages::map(file(), 2, u64::MAX - 1).unwrap_err();
        DirtyPages::map(file(), 4095, 1).unwrap();
    }
}
