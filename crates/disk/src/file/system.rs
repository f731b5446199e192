//! What kind of file it is, and what the file system below means for it.

use std::fs::File;

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// `f_type` of file systems that one machine alone has mounted: its page cache is all there is.
const OF_ONE_MACHINE: [u64; 9] = [
    TMPFS_MAGIC,
    RAMFS_MAGIC,
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x794c_7630, // overlayfs
];

/// Those of cluster file systems that keep the page caches of all machines the same, as libvirt lists them.
const COHERENT: [u64; 3] = [
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x00c3_6400, // CephFS
];

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Regular,
    BlockDevice,
}

/// Where does the file keep its data?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// On storage, which a flush reaches.
    Storage,
    /// In memory alone (tmpfs). To read or write it is a copy, and a flush has nothing to do.
    Memory,
}

/// Whose writes the page cache of a file is sure to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Those of all that have the file open.
    AllWrites,
    /// Those of this machine. What it is that others may have as well.
    OwnWrites(&'static str),
}

/// Whose writes are seen through the page cache of `file`.
///
/// Of what is not known, as FUSE and 9p, which depend on their servers, the worst is expected. To drop the pages of a
/// block device for certain (`BLKFLSBUF`) takes privileges that a daemon should not have, and `POSIX_FADV_DONTNEED`
/// may leave some.
pub fn coherence(kind: Kind, file: &File) -> Coherence {
    match (kind, system(file)) {
        (Kind::BlockDevice, _) => Coherence::OwnWrites("a block device"),
        (Kind::Regular, Some(system)) => coherence_of(system),
        (Kind::Regular, None) => Coherence::OwnWrites("a file system that does not name itself"),
    }
}

fn coherence_of(system: u64) -> Coherence {
    if OF_ONE_MACHINE.contains(&system) || COHERENT.contains(&system) {
        Coherence::AllWrites
    } else {
        Coherence::OwnWrites("a file system that other machines may have mounted")
    }
}

/// Where `file` keeps its data.
pub fn residence(kind: Kind, file: &File) -> Residence {
    match (kind, system(file)) {
        (Kind::Regular, Some(TMPFS_MAGIC | RAMFS_MAGIC)) => Residence::Memory,
        // The node of a device may lie on a tmpfs as well, as all of /dev does.
        _ => Residence::Storage,
    }
}

fn system(file: &File) -> Option<u64> {
    let system = rustix::fs::fstatfs(file).ok()?;
    // It is a signed number of 32 bits on some architectures.
    Some(system.f_type.cast_unsigned() & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_write_is_seen_where_that_is_certain() {
        const NFS: u64 = 0x6969;
        const FUSE: u64 = 0x6573_5546;
        const NINE_P: u64 = 0x0102_1997;
        for system in [NFS, FUSE, NINE_P, 0] {
            assert!(
                matches!(coherence_of(system), Coherence::OwnWrites(_)),
                "{system:x}"
            );
        }
        for system in OF_ONE_MACHINE.into_iter().chain(COHERENT) {
            assert_eq!(coherence_of(system), Coherence::AllWrites, "{system:x}");
        }
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(coherence(Kind::Regular, &file), Coherence::AllWrites);
        let device = coherence(Kind::BlockDevice, &file);
        assert!(matches!(device, Coherence::OwnWrites(_)));
    }
}
