//! What fails is logged with path and offset, but not for ever: a guest that goes on writing to a full disk
//! must not fill the log's disk as well.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::error;

/// As many in a row are told...
const BURST: u32 = 10;

/// ...and then as many again after this long, with how many were not.
const PAUSE: Duration = Duration::from_secs(10);

/// Tells what failed on one disk.
#[derive(Debug, Default)]
pub struct Complaints {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    told: u32,
    withheld: u64,
}

/// Something that failed.
#[derive(Clone, Copy, Debug)]
pub struct Complaint<'a> {
    /// What was done, in the words of "cannot …".
    pub doing: &'a str,
    pub path: &'a Path,
    pub at: u64,
    pub len: u64,
    pub error: Errno,
}

impl Complaints {
    pub fn tell(&self, complaint: Complaint<'_>) {
        let Some(withheld) = self.admits(Instant::now()) else {
            return;
        };
        let Complaint {
            doing,
            path,
            at,
            len,
            error,
        } = complaint;
        let path = path.display();
        if withheld == 0 {
            error!(%path, at, len, %error, "cannot {doing}");
        } else {
            error!(%path, at, len, %error, withheld, "cannot {doing}; before it, others of this disk were not told");
        }
    }

    /// May another one be told, and how many were not before it?
    fn admits(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *state.since.get_or_insert(now);
        if now.duration_since(since) >= PAUSE {
            state.since = Some(now);
            state.told = 0;
        }
        if state.told == BURST {
            state.withheld += 1;
            return None;
        }
        state.told += 1;
        Some(std::mem::take(&mut state.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_and_the_rest_is_counted_until_later() {
        let complaints = Complaints::default();
        let start = Instant::now();
        for _ in 0..BURST {
            assert_eq!(complaints.admits(start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(complaints.admits(start + PAUSE / 2), None);
        }
        assert_eq!(complaints.admits(start + PAUSE), Some(7));
        assert_eq!(complaints.admits(start + PAUSE), Some(0));
    }
}
