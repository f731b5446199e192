//! What fails is logged with path and offset, but not for ever: a guest that goes on writing to a full disk
//! must not fill the log's disk as well.

use std::path::Path;

use rustix::io::Errno;
use tracing::error;

use crate::quota::{Admitted, Quota};

/// As many are told at once.
const BURST: u32 = 10;

/// Tells what failed on one disk.
#[derive(Debug)]
pub struct Complaints(Quota);

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

impl Default for Complaints {
    fn default() -> Self {
        Self(Quota::new(BURST))
    }
}

impl Complaints {
    pub fn tell(&self, complaint: Complaint<'_>) {
        let Some(Admitted { withheld }) = self.0.admits() else {
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
        error!(%path, at, len, %error, withheld, "cannot {doing}");
    }
}
