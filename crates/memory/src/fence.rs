//! The full fences of a sleep's handshake, in one place so that a proof can leave one out.

#[cfg(not(loom))]
use std::sync::atomic::{Ordering, fence};

/// A side of a handshake between one that may sleep and one that wakes it. Each stores, passes a full fence, and loads
/// what the other has stored: so one of them sees the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Publishes something, then loads whether it is to wake the other.
    Writer,
    /// Says that it is to be woken, then polls once more for what was published.
    Reader,
}

#[cfg(not(loom))]
impl Side {
    /// Passes the full fence between the store and the load.
    #[inline]
    pub fn full_fence(self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
impl Side {
    /// As without loom; but the side that the environment names in `WITHOUT_FENCE` passes none.
    pub fn full_fence(self) {
        if left_out() != Some(self) {
            loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        }
    }
}

#[cfg(loom)]
fn left_out() -> Option<Side> {
    static LEFT_OUT: std::sync::OnceLock<Option<Side>> = std::sync::OnceLock::new();
    *LEFT_OUT.get_or_init(|| match std::env::var("WITHOUT_FENCE").as_deref() {
        Err(_) => None,
        Ok("writer") => Some(Side::Writer),
        Ok("reader") => Some(Side::Reader),
        Ok(other) => panic!("WITHOUT_FENCE={other}: it is writer or reader"),
    })
}
