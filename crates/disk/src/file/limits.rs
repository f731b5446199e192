//! What a block device says of its requests, in `/sys/dev/block/MAJOR:MINOR`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// All in bytes, and 0 where there is nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The smallest request that costs no more than its share.
    pub min_io: u32,
    /// The best size of a request, a stripe for instance.
    pub optimal_io: u32,
    /// What a discard should be aligned to.
    pub discard_granularity: u32,
    /// The largest discard; 0 where the device has none.
    pub discard_max: u64,
    /// As much can be zeroed without writing zeroes; 0 where all of them are written.
    pub write_zeroes_max: u64,
}

impl Limits {
    /// Those of the device that `metadata` is of.
    ///
    /// # Errors
    ///
    /// Where there is no `/sys`, or the device has no queue.
    pub fn of(metadata: &fs::Metadata) -> io::Result<Self> {
        Self::read(&folder(metadata))
    }

    fn read(device: &Path) -> io::Result<Self> {
        let queue = queue(device)?;
        Ok(Self {
            min_io: number(&queue, "minimum_io_size"),
            optimal_io: number(&queue, "optimal_io_size"),
            discard_granularity: number(&queue, "discard_granularity"),
            discard_max: number(&queue, "discard_max_bytes"),
            write_zeroes_max: number(&queue, "write_zeroes_max_bytes"),
        })
    }
}

/// The logical block size of the device that the file system of `metadata`'s file lies on; 0 where it is on none, or on
/// several.
pub fn block_below(metadata: &fs::Metadata) -> u32 {
    block_of(&numbered(metadata.dev()))
}

fn block_of(device: &Path) -> u32 {
    queue(device).map_or(0, |queue| number(&queue, "logical_block_size"))
}

/// Does the device that `metadata` is of refuse writes? Opening one for writing need not fail.
pub fn refuses_writes(metadata: &fs::Metadata) -> bool {
    number::<u8>(&folder(metadata), "ro") != 0
}

fn folder(metadata: &fs::Metadata) -> PathBuf {
    numbered(metadata.rdev())
}

fn numbered(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", major(device), minor(device)).into()
}

/// A partition has the queue of the whole device, whose folder is its parent's. A path that climbs up
/// from a symbolic link, as these are, climbs up from where it leads.
fn queue(device: &Path) -> io::Result<PathBuf> {
    let whole = if device.join("partition").exists() {
        device.join("..")
    } else {
        device.to_owned()
    };
    whole.join("queue").canonicalize()
}

/// What older kernels do not have, or larger than a `T`, is nothing.
fn number<T: TryFrom<u64> + Default>(folder: &Path, name: &str) -> T {
    let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
    let number: Option<u64> = text.trim().parse().ok();
    number.and_then(|n| n.try_into().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with a partition as `/sys` shows it, with links to it as in `/sys/dev/block`.
    fn sysfs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (disk, links) = (folder.path().join("devices/sda"), folder.path().join("dev"));
        for sub in ["queue", "sda1"] {
            fs::create_dir_all(disk.join(sub)).unwrap();
        }
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        for (name, value) in [
            ("minimum_io_size", "4096"),
            ("optimal_io_size", "1048576"),
            ("discard_granularity", "512"),
            ("discard_max_bytes", "4294966784"),
            ("logical_block_size", "4096"),
        ] {
            fs::write(disk.join("queue").join(name), format!("{value}\n")).unwrap();
        }
        fs::create_dir(&links).unwrap();
        for (link, to) in [("8:0", disk.clone()), ("8:1", disk.join("sda1"))] {
            std::os::unix::fs::symlink(to, links.join(link)).unwrap();
        }
        folder
    }

    #[test]
    fn a_partition_has_the_limits_of_its_device() {
        let folder = sysfs();
        let expected = Limits {
            min_io: 4096,
            optimal_io: 1 << 20,
            discard_granularity: 512,
            discard_max: 4_294_966_784,
            write_zeroes_max: 0,
        };
        for device in ["dev/8:0", "dev/8:1"] {
            let limits = Limits::read(&folder.path().join(device)).unwrap();
            assert_eq!(limits, expected, "{device}");
            assert_eq!(block_of(&folder.path().join(device)), 4096);
        }
    }

    #[test]
    fn what_is_no_device_has_no_limits() {
        let folder = sysfs();
        assert!(Limits::read(&folder.path().join("dev/8:2")).is_err());
        let regular = fs::metadata(folder.path().join("dev/8:1/partition")).unwrap();
        assert!(Limits::of(&regular).is_err());
        assert_eq!(block_of(&folder.path().join("dev/8:2")), 0);
    }
}
