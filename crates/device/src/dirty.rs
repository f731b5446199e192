//! Logging what a queue writes to guest memory, while a frontend migrates its guest.
//!
//! The frontend copies the guest's memory to another machine while the guest runs and this device writes,
//! and copies again what was logged meanwhile ([`DirtyPages`]). A queue logs after it has written: data
//! and status of a request before its used element is published, the used ring after each publication and
//! each wish about kicks, and all of it before `GET_VRING_BASE` is answered, after which the frontend
//! collects the log for the last time.

use std::fs::File;
use std::sync::Arc;

use pollux_blk::feature;
use pollux_memory::{Alarm, DirtyPages, Memory, Span};
use pollux_ring::Layout;
use vhost::vhost_user::message::VhostUserLog;

use crate::refusal::Refusal;

/// The log that a session was given, if any.
#[derive(Debug, Default)]
pub struct Log(Option<Arc<DirtyPages>>);

impl Log {
    /// What `SET_LOG_BASE` brings. To lose its memory rings `alarm`.
    pub fn map(message: &VhostUserLog, file: File, alarm: &Arc<Alarm>) -> Result<Self, Refusal> {
        let pages = DirtyPages::map(file, message.mmap_offset, message.mmap_size);
        let pages = pages.map_err(Refusal::Log)?;
        Ok(Self(Some(Arc::new(pages.with_alarm(Arc::clone(alarm))))))
    }

    /// Where queues log what they write to `memory`, while `LOG_ALL` is among the accepted `features`.
    ///
    /// A frontend may accept it and have no log yet: nobody copies its guest's memory then.
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

/// Where one queue logs.
#[derive(Debug)]
pub struct Dirty {
    pages: Arc<DirtyPages>,
    used_ring: Option<UsedRing>,
}

/// Where the used ring lies in the log.
#[derive(Clone, Copy, Debug)]
struct UsedRing {
    address: u64,
    bytes: u64,
}

impl Dirty {
    /// A queue of `size` entries that logs in `pages`, what it writes to its used ring as changes of guest
    /// memory at `used_ring` (`VHOST_VRING_F_LOG`).
    pub fn new(
        pages: &Arc<DirtyPages>,
        used_ring: Option<u64>,
        size: u16,
    ) -> Result<Self, Refusal> {
        let bytes = Layout::of(size).device as u64;
        let used_ring = used_ring.map(|address| UsedRing { address, bytes });
        if let Some(UsedRing { address, .. }) = used_ring {
            covers(pages, address.saturating_add(bytes))?;
        }
        let pages = Arc::clone(pages);
        Ok(Self { pages, used_ring })
    }

    /// The first `bytes` of `data`, and `status`, were written.
    ///
    /// Out of line, as it is called only while a guest migrates.
    #[cold]
    pub fn request(&self, memory: &Memory, data: &[Span], bytes: u64, status: Option<Span>) {
        let mut left = bytes;
        for span in data {
            let len = left.min(span.len() as u64);
            self.written(memory, *span, len);
            left -= len;
        }
        if let Some(status) = status {
            self.written(memory, status, 1);
        }
    }

    /// Something in the used ring was written. Which of its few pages does not matter: they change all
    /// the time.
    #[cold]
    pub fn used_ring(&self) {
        if let Some(UsedRing { address, bytes }) = self.used_ring {
            self.pages.mark(address, bytes);
        }
    }

    fn written(&self, memory: &Memory, span: Span, bytes: u64) {
        let address = memory
            .guest_address(span)
            .expect("requests point into the session's memory");
        self.pages.mark(address, bytes);
    }
}

/// Fails unless `pages` have a bit for all that lies before `end`: what is not logged would be missing from
/// the copy of the guest, and nobody would know.
fn covers(pages: &DirtyPages, end: u64) -> Result<(), Refusal> {
    let covered = pages.end();
    if end <= covered {
        Ok(())
    } else {
        Err(Refusal::ShortLog { covered, end })
    }
}
