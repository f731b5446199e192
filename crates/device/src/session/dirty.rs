//! The log of dirty pages that a frontend gives while it migrates its guest, and where queues log in it ([`Dirty`]).

use std::fs::File;
use std::sync::Arc;

use pollux_blk::feature;
use pollux_memory::{Alarm, DirtyPages, Memory};
use vhost::vhost_user::message::VhostUserLog;

use super::refusal::Refusal;
use crate::queue::{Dirty, UsedRing};

/// How long a log may be, in bytes: a bit for each page of 4 KiB of a guest with addresses of 52 bits.
const MAX_LOG: u64 = 1 << (52 - 12 - 3);

/// The log that a session was given, if any.
#[derive(Debug, Default)]
pub struct Log(Option<Arc<DirtyPages>>);

impl Log {
    /// What `SET_LOG_BASE` carries. To lose its memory rings `alarm`.
    pub fn map(message: &VhostUserLog, file: File, alarm: &Arc<Alarm>) -> Result<Self, Refusal> {
        let (len, most) = (message.mmap_size, MAX_LOG);
        if len > most {
            return Err(Refusal::LongLog { len, most });
        }
        let pages = DirtyPages::map(file, message.mmap_offset, message.mmap_size);
        let pages = pages.map_err(Refusal::Log)?;
        Ok(Self(Some(Arc::new(pages.with_alarm(Arc::clone(alarm))))))
    }

    /// Was none given?
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// All of `memory` may have been written.
    pub fn mark_all(&self, memory: &Memory) {
        for region in memory.regions() {
            if let Some(pages) = &self.0 {
                pages.mark(region.guest(), region.len());
            }
        }
    }

    /// Where queues log what they write to `memory`, while `LOG_ALL` is among the accepted `features`.
    ///
    /// A frontend may accept it and have no log yet. Once it gives one, all memory counts as written if queues have run.
    pub fn wanted(
        &self,
        features: u64,
        memory: &Memory,
    ) -> Result<Option<&Arc<DirtyPages>>, Refusal> {
        let pages = self.0.as_ref();
        let pages = pages.filter(|_| features & feature::LOG_ALL != 0);
        pages.map_or(Ok(()), |pages| covers(pages, memory.end()))?;
        Ok(pages)
    }
}

/// A queue that logs in `pages`, and what it writes to its used ring there.
pub fn of_queue(pages: &Arc<DirtyPages>, used_ring: Option<UsedRing>) -> Result<Dirty, Refusal> {
    used_ring.map_or(Ok(()), |ring| covers(pages, ring.end()))?;
    Ok(Dirty::new(Arc::clone(pages), used_ring))
}

/// Fails unless `pages` have a bit for all that lies before `end`: what is not logged would be missing from
/// the copy of the guest, and this would not be noticed.
fn covers(pages: &DirtyPages, end: u64) -> Result<(), Refusal> {
    let covered = pages.end();
    if end <= covered {
        Ok(())
    } else {
        Err(Refusal::ShortLog { covered, end })
    }
}
