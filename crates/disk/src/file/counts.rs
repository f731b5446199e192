//! Which way requests went, over all channels of a disk.

use std::sync::atomic::{AtomicU64, Ordering};

/// What one channel has counted and not yet added to those of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Reads and writes done at once.
    pub inline: u64,
    /// Transfers handed to `io_uring`.
    pub queued: u64,
    /// Of these, those whose memory is registered.
    pub registered: u64,
    /// System calls that started them or fetched their ends.
    pub entered: u64,
    /// Requests handed to the threads.
    pub pooled: u64,
    /// Of these, reads and writes whose memory direct I/O cannot use.
    pub bounced: u64,
}

/// Those of all channels.
#[derive(Debug, Default)]
pub struct Totals {
    inline: AtomicU64,
    queued: AtomicU64,
    registered: AtomicU64,
    entered: AtomicU64,
    pooled: AtomicU64,
    bounced: AtomicU64,
}

impl Totals {
    /// Adds `counts` and sets them to nothing: once a turn, so that requests pay nothing.
    pub fn add(&self, counts: &mut Counts) {
        let Counts {
            inline,
            queued,
            registered,
            entered,
            pooled,
            bounced,
        } = std::mem::take(counts);
        for (total, more) in [
            (&self.inline, inline),
            (&self.queued, queued),
            (&self.registered, registered),
            (&self.entered, entered),
            (&self.pooled, pooled),
            (&self.bounced, bounced),
        ] {
            if more > 0 {
                total.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Their names and values.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        [
            ("inline", &self.inline),
            ("io_uring", &self.queued),
            ("registered", &self.registered),
            ("io_uring_enter", &self.entered),
            ("threads", &self.pooled),
            ("bounced", &self.bounced),
        ]
        .map(|(name, total)| (name, total.load(Ordering::Relaxed)))
        .into()
    }
}
