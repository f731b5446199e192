//! What is asked of which disk.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// The disk behind the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    /// Nothing: requests complete without touching the data. What is left is the ring.
    Null,
    /// Memory that was written before, so that every read copies real data.
    Memory,
    /// A file on tmpfs through the page cache: no device is below it.
    Tmpfs,
    /// A file of a disk's file system, all of it in the page cache.
    Cached,
    /// A file of a disk's file system past the page cache (`O_DIRECT`).
    Direct,
    /// A qcow2 image on tmpfs, all of whose clusters are allocated and full of data.
    Image,
    /// An empty qcow2 image on tmpfs: the first write to a cluster allocates it.
    Fresh,
    /// An image in a Ceph cluster that keeps everything in memory, all of whose objects are there and full of data.
    Rbd,
    /// Memory, each of whose answers comes so many microseconds late: asynchronous, without a limit of its own.
    Delayed(u16),
}

impl Disk {
    /// Bytes of it: more than any processor's cache holds of the machines that we measure on.
    pub const fn size(self) -> u64 {
        match self {
            Self::Null => 2 << 30,
            Self::Memory | Self::Delayed(_) | Self::Rbd => 256 << 20,
            Self::Tmpfs | Self::Cached | Self::Direct | Self::Image => 1 << 30,
            // So many clusters that a measurement writes to few of them twice.
            Self::Fresh => 16 << 30,
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: Cow<'_, str> = match self {
            Self::Null => "null".into(),
            Self::Memory => "memory".into(),
            Self::Tmpfs => "tmpfs".into(),
            Self::Cached => "cached".into(),
            Self::Direct => "direct".into(),
            Self::Image => "image".into(),
            Self::Fresh => "fresh".into(),
            Self::Rbd => "rbd".into(),
            Self::Delayed(us) => format!("delayed-{us}us").into(),
        };
        f.pad(&name)
    }
}

/// What is asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Reads at random offsets.
    RandRead,
    /// Writes at random offsets.
    RandWrite,
    /// Reads, one after the other.
    Read,
    /// Writes, one after the other.
    Write,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}
