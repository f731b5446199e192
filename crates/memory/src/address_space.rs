//! How much of this process's address space peers take: a sparse file may be as long as its maker likes, and takes up
//! nothing. Where they had all of it, no thread, ring or allocation of this process would find a place.

use std::sync::atomic::{AtomicU64, Ordering};

/// What they all take together at most, in bytes: half of what a process has on x86-64.
const MOST: u64 = 1 << 46;

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Room for one region, given back when this is dropped.
#[derive(Debug)]
pub struct Room(u64);

impl Room {
    /// For `bytes`, if that much is left.
    pub fn take(bytes: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= MOST);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self(bytes))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_more_than_there_is_and_what_goes_comes_back() {
        // Other tests have a little of it.
        let first = Room::take(MOST / 2).unwrap();
        assert!(Room::take(MOST / 2 + 1).is_none());
        assert!(Room::take(u64::MAX).is_none());
        let _second = Room::take(MOST / 4).unwrap();
        drop(first);
        let _third = Room::take(MOST / 2).unwrap();
    }
}
