//! Logging what a queue writes to guest memory, while a frontend migrates its guest.
//!
//! The frontend copies the guest's memory to another machine while the guest runs and this device writes,
//! and copies again what was logged meanwhile ([`DirtyPages`]). A queue logs after it has written: data
//! and status of a request before its used element is published, the used ring after each publication and
//! each wish about kicks, and all of it before `GET_VRING_BASE` is answered, after which the frontend
//! collects the log for the last time.

use std::sync::Arc;

use pollux_memory::{DirtyPages, Memory, Span};
use pollux_ring::Layout;

/// Where one queue logs.
#[derive(Debug)]
pub struct Dirty {
    pages: Arc<DirtyPages>,
    used_ring: Option<UsedRing>,
}

/// Where the used ring lies in the log.
#[derive(Clone, Copy, Debug)]
pub struct UsedRing {
    address: u64,
    bytes: u64,
}

impl UsedRing {
    /// That of a queue of `size` entries, which is logged as changes of guest memory at `address`
    /// (`VHOST_VRING_F_LOG`).
    pub fn new(address: u64, size: u16) -> Self {
        let bytes = Layout::of(size).device as u64;
        Self { address, bytes }
    }

    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

impl Dirty {
    /// A queue that logs in `pages`, which have a bit for all that it writes, its used ring included.
    pub fn new(pages: Arc<DirtyPages>, used_ring: Option<UsedRing>) -> Self {
        Self { pages, used_ring }
    }

    /// The first `bytes` of `data`, and `status`, were written.
    ///
    /// Out of line, as it is called only while a guest migrates.
    #[cold]
    pub fn request(&self, memory: &Memory, data: &[Span], bytes: u64, status: Option<Span>) {
        let mut left = bytes;
        for span in data {
            if left == 0 {
                break;
            }
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
