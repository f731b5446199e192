//! The right to write an image.
//!
//! The exclusive lock of librbd, held for good: a client that asks for it is refused. That of a client which is dead is
//! broken by librbd itself, which shuts that client out of the cluster first (*blocklists* it), so that nothing it
//! sent arrives later than what its successor writes. librbd takes a client for dead once the cluster has not heard
//! of it for `osd_client_watch_timeout` (30 s). A daemon that was killed and starts again waits so long.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::RbdError;
use crate::image::Opened;

/// How often a lock is asked for that another client has. Only the cluster knows when that is over, and does not tell.
const AGAIN: Duration = Duration::from_millis(500);

/// Waits until the image is locked, for so long at most.
pub fn take(image: &Opened, patience: Duration) -> Result<(), RbdError> {
    let deadline = Instant::now() + patience;
    if let Some(holder) = image.holder() {
        // librbd itself waits until the cluster knows that the holder is dead; one that lives it reports at once.
        let image = image.name();
        tracing::warn!(
            "waiting for the lock of {image}, which the client at {holder} has, or had when it died"
        );
    }
    while !image.try_lock()? {
        if Instant::now() >= deadline {
            let holder = image.holder();
            let image = image.name().to_owned();
            return Err(RbdError::InUse { image, holder });
        }
        thread::sleep(AGAIN);
    }
    Ok(())
}
