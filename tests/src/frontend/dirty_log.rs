//! The log of dirty pages, as the one who collects it sees it.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;

use super::{Frontend, GuestMemory};

/// A bit for each page of guest memory that the device has written.
pub struct DirtyLog(GuestMemory);

/// The number of the page at guest address `address`.
pub const fn page(address: u64) -> u64 {
    address / 4096
}

impl DirtyLog {
    /// An empty log for guest memory below `end`, which is a multiple of 64 KiB.
    pub fn below(end: u64) -> io::Result<Self> {
        let len = usize::try_from(page(end) / 8).expect("a log is small");
        GuestMemory::new(0, len).map(Self)
    }

    /// Its memory.
    pub const fn memory(&self) -> &GuestMemory {
        &self.0
    }

    /// Gives it to the backend, and waits until that uses it.
    pub fn pass_to(&self, frontend: &Frontend) -> io::Result<()> {
        let region = self.0.region();
        frontend.set_log_base(region.len, 0, Some(region.fd))
    }

    /// The numbers of the pages that were logged since the last time, which are forgotten: as QEMU does it,
    /// at any moment.
    pub fn collect(&self) -> BTreeSet<u64> {
        let words = usize::try_from(self.0.region().len / 2).expect("a log is small");
        let pages = |at: usize| {
            let word = self.0.word(2 * at);
            // Most are empty, and looking is cheaper.
            let bits = match word.load(Ordering::Relaxed) {
                0 => 0,
                _ => word.swap(0, Ordering::SeqCst),
            };
            (0..16)
                .filter(move |bit| bits & 1 << bit != 0)
                .map(move |bit| 16 * at as u64 + bit)
        };
        (0..words).flat_map(pages).collect()
    }
}
