//! A disk while it is used.

use std::ops::Deref;
use std::sync::Arc;

use pollux_disk::Disk;

/// Acquired, until it is dropped: a disk that others may use at other times takes requests only in between.
pub struct Held(Arc<dyn Disk>);

impl Held {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        disk.acquire()
            .unwrap_or_else(|error| panic!("a disk that is not in use is acquired: {error}"));
        Self(disk)
    }

    /// Lets others have it, and takes it back.
    pub fn renew(&self) {
        self.0
            .release()
            .unwrap_or_else(|error| panic!("a disk that is acquired is released: {error}"));
        self.0
            .acquire()
            .unwrap_or_else(|error| panic!("a disk that was released is acquired: {error}"));
    }
}

impl Deref for Held {
    type Target = Arc<dyn Disk>;

    fn deref(&self) -> &Arc<dyn Disk> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let released = self.0.release();
        assert!(
            released.is_ok() || std::thread::panicking(),
            "a disk that is acquired is released: {released:?}"
        );
    }
}
