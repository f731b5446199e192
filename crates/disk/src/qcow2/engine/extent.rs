//! What is where in an image.

use std::io;

use imago::Mapping;
use rustix::io::Errno;

use super::Engine;

/// A part of a range, and what is there.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub at: u64,
    pub len: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Zero,
    /// Zeroes of this image, which may keep a cluster under them, or hide what is below.
    Hidden,
    /// Data of this image, which alone uses it: it begins there in its file.
    Own(usize, u64),
    /// Data of this image that a snapshot uses as well.
    Snapshot,
    /// Compressed data of this image.
    Compressed,
    /// Data of a backing file.
    Below,
}

impl Extent {
    pub fn is_zero(&self) -> bool {
        matches!(self.what, What::Zero | What::Hidden)
    }

    /// The first `len` bytes of it, and the others.
    pub fn split(self, len: u64) -> [Self; 2] {
        let behind = match self.what {
            What::Own(leg, there) => What::Own(leg, there + len),
            other => other,
        };
        let rest = Self {
            at: self.at + len,
            len: self.len - len,
            what: behind,
        };
        [Self { len, ..self }, rest]
    }
}

impl Engine {
    /// What is at the start of a range, and how far that goes.
    pub(super) fn extent(&self, at: u64, len: u64) -> io::Result<Extent> {
        let (mapping, there) = self.image.get_mapping(at, len)?;
        let what = match mapping {
            Mapping::Zero { explicit: true, .. } => What::Hidden,
            Mapping::Zero { .. } => What::Zero,
            Mapping::Raw {
                storage,
                offset,
                writable,
                ..
            } if storage.leg == self.data && writable => What::Own(storage.leg, offset),
            Mapping::Raw { storage, .. } if storage.leg == self.data => What::Snapshot,
            Mapping::Special { layer, .. } if std::ptr::eq(layer, &raw const self.image) => {
                What::Compressed
            }
            _ => What::Below,
        };
        let len = there.min(len);
        if len == 0 {
            return Err(Errno::IO.into());
        }
        Ok(Extent { at, len, what })
    }

    pub(super) fn extents(&self, mut at: u64, len: u64) -> io::Result<Vec<Extent>> {
        let end = at + len;
        let mut extents = Vec::new();
        while at < end {
            let extent = self.extent(at, end - at)?;
            at += extent.len;
            extents.push(extent);
        }
        Ok(extents)
    }
}
