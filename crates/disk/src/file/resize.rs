//! A file that grows while it is served.
//!
//! The new size counts once the file has it, never before: a request that passes the check finds its bytes. It never
//! gets smaller, as a guest may use all of what it was told.

use std::sync::atomic::Ordering;

use pollux_threads::lock;

use super::backing::Backing;
use super::size::size;
use super::system::Kind;
use crate::{Access, ResizeError};

impl Backing {
    /// Makes the file `bytes` long, or reads how long it has become: see [`Disk::resize`](crate::Disk::resize).
    /// Has it changed?
    pub fn resize(&self, bytes: Option<u64>) -> Result<bool, ResizeError> {
        let path = || self.path.clone();
        let _growing = lock(&self.growing);
        let resized = self.hold.while_locked(|| match bytes {
            Some(bytes) => self.enlarge(bytes).and_then(|()| self.look_again()),
            None => self.look_again(),
        });
        resized.unwrap_or_else(|| Err(ResizeError::NotHeld { path: path() }))
    }

    fn enlarge(&self, asked: u64) -> Result<(), ResizeError> {
        let (path, block) = (|| self.path.clone(), self.as_opened.block);
        let now = self.bytes.load(Ordering::Relaxed);
        if asked < now {
            return Err(ResizeError::Smaller { now, asked });
        }
        if !asked.is_multiple_of(block.into()) {
            return Err(ResizeError::PartialBlock { asked, block });
        }
        if self.kind == Kind::BlockDevice {
            return Err(ResizeError::BlockDevice { path: path() });
        }
        if self.as_opened.access == Access::ReadOnly {
            return Err(ResizeError::ReadOnly { path: path() });
        }
        // Others may have made it longer than that: nothing of it is cut off.
        if asked > self.len()? {
            self.file.set_len(asked).map_err(|source| ResizeError::Io {
                doing: "enlarge",
                path: path(),
                source,
            })?;
        }
        Ok(())
    }

    fn look_again(&self) -> Result<bool, ResizeError> {
        let now = self.bytes.load(Ordering::Relaxed);
        let found = self.len()?;
        if found < now {
            let path = self.path.clone();
            return Err(ResizeError::Shrunk { path, now, found });
        }
        let bytes = found - found % u64::from(self.as_opened.block);
        // A listener that is told of it afterwards reads this size or a later one: `Events` has a lock.
        Ok(self.bytes.fetch_max(bytes, Ordering::Relaxed) < bytes)
    }

    fn len(&self) -> Result<u64, ResizeError> {
        size(&self.file).map_err(|source| ResizeError::Io {
            doing: "find the size of",
            path: self.path.clone(),
            source,
        })
    }
}
