//! Opening a file as a disk: what it is, how large, in which blocks, and what it can do.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use tracing::warn;

use super::backing::{Backing, Kind, Residence};
use super::complaints::Complaints;
use super::hold::Hold;
use super::limits::{Limits, refuses_writes};
use super::lock;
use super::ready::Ready;
use super::settings::{Cache, Settings};
use super::sync::Syncer;
use crate::{Access, Geometry, OpenError, Options, RangeLimits};

/// One request over a range, long as it may take, holds up one thread of the pool and nobody else.
const MAX_DISCARD: u64 = 1 << 30;
const MAX_WRITE_ZEROES: u64 = 128 << 20;

/// Opens what lies at `path`.
pub fn open(path: &Path, settings: Settings, options: Options) -> Result<Backing, OpenError> {
    let cache = settings.cache;
    let looked =
        fs::metadata(path).map_err(|error| refused(path, cache, options.access(), error))?;
    // Before it is opened, as opening a pipe would wait for its other end.
    let kind = disk_type(path, looked.file_type())?;
    let flags = flags(kind, cache, options.access());
    let open = || rustix::fs::open(path, flags, Mode::empty()).map(fs::File::from);
    let opened = match open() {
        Err(Errno::BUSY) => lock::open_busy(path, options.access(), open)?,
        opened => opened,
    };
    let file = opened.map_err(|error| refused(path, cache, options.access(), error.into()))?;
    let failed = |doing| {
        move |source: io::Error| OpenError::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    let hold = Hold::open(settings.lock, &file, path, options.access())?;
    let metadata = file.metadata().map_err(failed("look at"))?;
    let kind = disk_type(path, metadata.file_type())?;
    if kind == Kind::BlockDevice
        && options.access() == Access::ReadWrite
        && refuses_writes(&metadata)
    {
        return Err(refused(path, cache, options.access(), Errno::ROFS.into()));
    }
    let size = rustix::fs::seek(&file, SeekFrom::End(0))
        .map_err(|error| failed("find the size of")(error.into()))?;
    let storage =
        storage_blocks(&file, kind, &metadata).map_err(failed("find the block size of"))?;
    let (block, alignment) = direct(path, &file, cache, options, storage.logical)?;
    let limits = match kind {
        Kind::Regular => limits_of_file(&file, size, storage.physical),
        Kind::BlockDevice => limits_of_device(path, &metadata),
    };
    let geometry = Geometry {
        bytes: whole_blocks(path, size, block)?,
        access: options.access(),
        block,
        physical_block: storage.physical.max(block),
        min_io: limits.min_io,
        optimal_io: limits.optimal_io,
        discard: None,
        write_zeroes: None,
    };
    Ok(Backing {
        geometry: abilities(geometry, limits),
        kind,
        residence: residence(kind, &file),
        file,
        path: path.to_owned(),
        settings,
        alignment,
        sync: Syncer::default(),
        ready: Ready::default(),
        complaints: Complaints::default(),
        hold,
    })
}

fn disk_type(path: &Path, kind: FileType) -> Result<Kind, OpenError> {
    let what = if kind.is_file() {
        return Ok(Kind::Regular);
    } else if kind.is_block_device() {
        return Ok(Kind::BlockDevice);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a pipe"
    };
    Err(OpenError::NotADisk {
        path: path.to_owned(),
        what,
    })
}

fn flags(kind: Kind, cache: Cache, access: Access) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    flags |= match access {
        Access::ReadOnly => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    if cache == Cache::None {
        flags |= OFlags::DIRECT;
    }
    if kind == Kind::BlockDevice && access == Access::ReadWrite {
        // On a block device, without O_CREAT: fails where it is mounted or part of another device.
        flags |= OFlags::EXCL;
    }
    flags
}

fn refused(path: &Path, cache: Cache, access: Access, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::NOENT | Errno::NOTDIR) => OpenError::Missing { path },
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => OpenError::Permission {
            path,
            access,
            source,
        },
        Some(Errno::BUSY | Errno::TXTBSY) => OpenError::Busy { path, source },
        Some(Errno::INVAL) if cache == Cache::None => OpenError::NoDirect { path, source },
        _ => OpenError::Io {
            doing: "open",
            path,
            source,
        },
    }
}

/// `f_type` of tmpfs and of its simpler brother.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

fn residence(kind: Kind, file: &fs::File) -> Residence {
    let system = rustix::fs::fstatfs(file).map(|system| system.f_type.cast_unsigned());
    match (kind, system) {
        (Kind::Regular, Ok(TMPFS_MAGIC | RAMFS_MAGIC)) => Residence::Memory,
        // The node of a device may lie on a tmpfs as well, as all of /dev does.
        _ => Residence::Storage,
    }
}

struct StorageBlocks {
    logical: u32,
    physical: u32,
}

fn storage_blocks(
    file: &fs::File,
    kind: Kind,
    metadata: &fs::Metadata,
) -> io::Result<StorageBlocks> {
    Ok(match kind {
        Kind::BlockDevice => StorageBlocks {
            logical: rustix::fs::ioctl_blksszget(file)?,
            physical: rustix::fs::ioctl_blkpbszget(file)?,
        },
        // Smaller writes make the page cache read first; of larger blocks (ZFS tells its record size)
        // a guest would make too much.
        Kind::Regular => StorageBlocks {
            logical: 512,
            physical: match metadata.blksize() {
                512..4096 => 512,
                _ => 4096,
            },
        },
    })
}

/// The block size of the disk, and what direct I/O asks of memory.
fn direct(
    path: &Path,
    file: &fs::File,
    cache: Cache,
    options: Options,
    logical: u32,
) -> Result<(u32, Option<usize>), OpenError> {
    if cache != Cache::None {
        return Ok((options.block(logical)?, None));
    }
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let (memory, offset) = match told {
        Some(told) if told.stx_dio_offset_align > 0 => {
            (told.stx_dio_mem_align, told.stx_dio_offset_align)
        }
        // Linux before 6.1 does not tell; 4096 suits all there is, on disks of that block size too.
        _ => (4096, logical),
    };
    let needed = offset.max(512);
    let block = options.block(needed.max(logical))?;
    if block < needed {
        return Err(OpenError::BlockBelowStorage {
            path: path.to_owned(),
            asked: block,
            needed,
        });
    }
    // Some storage asks less of addresses than of lengths; guests align both, so one number will do.
    let alignment = usize::try_from(memory.max(offset)).expect("a u32 is a usize");
    Ok((block, Some(alignment)))
}

fn whole_blocks(path: &Path, size: u64, block: u32) -> Result<u64, OpenError> {
    let beyond = size % u64::from(block);
    let bytes = size - beyond;
    if bytes == 0 {
        return Err(OpenError::Empty {
            path: path.to_owned(),
            bytes: size,
        });
    }
    if beyond > 0 {
        let path = path.display();
        warn!(
            %path, size, block,
            "the size is not a whole number of blocks; the last {beyond} bytes are out of reach"
        );
    }
    Ok(bytes)
}

/// A file does what its file system does: it is asked behind the end whether it takes holes.
fn limits_of_file(file: &fs::File, size: u64, physical_block: u32) -> Limits {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(file, mode, size.next_multiple_of(4096), 4096);
    Limits {
        discard_max: punched.map_or(0, |()| MAX_DISCARD),
        discard_granularity: physical_block,
        ..Limits::default()
    }
}

/// A device tells by itself, as asking it for a discard would be one.
fn limits_of_device(path: &Path, metadata: &fs::Metadata) -> Limits {
    Limits::of(metadata).unwrap_or_else(|error| {
        let path = path.display();
        warn!(%path, %error, "this device does not say what it can do: it is served without discard");
        Limits::default()
    })
}

fn abilities(geometry: Geometry, limits: Limits) -> Geometry {
    if geometry.access == Access::ReadOnly {
        return geometry;
    }
    let range = |max_bytes: u64, alignment: u32| RangeLimits {
        max_bytes: (max_bytes - max_bytes % u64::from(geometry.block)).max(geometry.block.into()),
        alignment: alignment.max(geometry.block),
    };
    let discard_max = limits.discard_max.min(MAX_DISCARD);
    let zeroes_max = match limits.write_zeroes_max {
        // Whoever cannot gets them written.
        0 => MAX_WRITE_ZEROES,
        max => max.min(MAX_WRITE_ZEROES),
    };
    Geometry {
        discard: (discard_max > 0).then(|| range(discard_max, limits.discard_granularity)),
        write_zeroes: Some(range(zeroes_max, geometry.physical_block)),
        ..geometry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path, cache: Cache) -> String {
        open(path, cache.into(), Options::default())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn what_is_no_disk_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let missing = message(&folder.path().join("no.img"), Cache::Writeback);
        assert!(
            missing.contains("no.img does not exist; create"),
            "{missing}"
        );
        let missing = message(Path::new("/dev/block/99:99"), Cache::Writeback);
        assert!(missing.contains("does not exist; `lsblk`"), "{missing}");
        let directory = message(folder.path(), Cache::Writeback);
        assert!(directory.contains("is a directory"), "{directory}");
        let device = message(Path::new("/dev/null"), Cache::Writeback);
        assert!(device.contains("is a character device"), "{device}");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(message(&socket, Cache::None).contains("is a socket"));
        let short = folder.path().join("short");
        fs::write(&short, [0; 511]).unwrap();
        let short = message(&short, Cache::Writeback);
        assert!(short.contains("holds 511 bytes"), "{short}");
    }

    #[test]
    fn every_refusal_of_the_system_has_its_remedy() {
        let told = |errno: Errno, access| {
            refused(Path::new("a.img"), Cache::None, access, errno.into()).to_string()
        };
        assert!(told(Errno::ACCESS, Access::ReadWrite).contains("or open it read-only"));
        assert!(told(Errno::ROFS, Access::ReadWrite).contains("may not be written"));
        assert!(told(Errno::ACCESS, Access::ReadOnly).contains("the right to read"));
        assert!(told(Errno::BUSY, Access::ReadWrite).contains("in use"));
        assert!(told(Errno::INVAL, Access::ReadWrite).contains("use `cache=writeback`"));
        assert_eq!(told(Errno::MFILE, Access::ReadWrite), "cannot open a.img");
    }

    #[test]
    fn the_end_of_a_file_that_is_no_whole_block_is_out_of_reach() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("odd.img");
        fs::write(&path, [0; 10_000]).unwrap();
        let with = |block_size| {
            let options = Options {
                block_size,
                ..Options::default()
            };
            open(&path, Settings::default(), options).unwrap().geometry
        };
        assert_eq!((with(None).bytes, with(None).block), (9728, 512));
        assert_eq!(with(Some(4096)).bytes, 8192);
        assert_eq!(with(Some(4096)).physical_block, 4096);
    }

    #[test]
    fn limits_become_abilities_within_our_own() {
        let plain = Geometry {
            block: 4096,
            physical_block: 4096,
            ..Geometry::plain(1 << 30)
        };
        let with = |discard_max, discard_granularity, write_zeroes_max| {
            let limits = Limits {
                discard_granularity,
                discard_max,
                write_zeroes_max,
                ..Limits::default()
            };
            let geometry = abilities(plain, limits);
            let pair = |range: RangeLimits| (range.max_bytes, range.alignment);
            let zeroes = geometry.write_zeroes.map(pair);
            (geometry.discard.map(pair), zeroes.unwrap())
        };
        assert_eq!(with(0, 512, 0), (None, (MAX_WRITE_ZEROES, 4096)));
        let (discard, zeroes) = with(u64::MAX, 0, 1);
        assert_eq!(discard, Some((MAX_DISCARD, 4096)));
        assert_eq!(zeroes, (4096, 4096));
        let (discard, zeroes) = with((1 << 20) + 512, 1 << 16, (64 << 10) + 512);
        assert_eq!(discard, Some((1 << 20, 1 << 16)));
        assert_eq!(zeroes, (64 << 10, 4096));
    }

    #[test]
    fn a_file_opened_read_only_promises_no_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let geometry = open(file.path(), Settings::default(), options)
            .unwrap()
            .geometry;
        assert_eq!(geometry.access, Access::ReadOnly);
        assert_eq!((geometry.discard, geometry.write_zeroes), (None, None));
    }
}
