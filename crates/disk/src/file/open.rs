//! Opening a file as a disk: what it is, how large, in which blocks, and what it can do.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{Access as Ask, AtFlags, FallocateFlags, Mode, OFlags, StatxFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use tracing::warn;

use super::backing::Backing;
use super::hold::Hold;
use super::limits::{self, Limits, refuses_writes};
use super::lock;
use super::nowait::NoWait;
use super::settings::{Cache, Format, Locked, Settings};
use super::size::{size, whole_blocks};
use super::sync::Syncer;
use super::system::{self, Coherence, Kind};
use super::{format, loops};
use crate::rights::closed_folder;
use crate::{Access, Geometry, OpenError, Options, Quota, RangeLimits};

/// One request over a range, long as it may take, holds up one thread of the pool and nothing else.
const MAX_DISCARD: u64 = 1 << 30;
const MAX_WRITE_ZEROES: u64 = 128 << 20;

/// Opens what lies at `path`.
pub fn open(path: &Path, settings: Settings, options: Options) -> Result<Backing, OpenError> {
    let cache = settings.cache;
    if let Some(folders) = options.within {
        check(path, folders)?;
    }
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
    backing(file, path, settings, options)
}

/// Is `path` in one of these folders, wherever links lead? What is not there says so when it is opened.
fn check(path: &Path, folders: &[PathBuf]) -> Result<(), OpenError> {
    match fs::canonicalize(path) {
        Ok(real) if !folders.iter().any(|folder| real.starts_with(folder)) => {
            let path = path.to_owned();
            Err(OpenError::Outside { path, real })
        }
        _ => Ok(()),
    }
}

/// Takes a file that is open already, and is called `path`.
pub fn adopt(
    file: fs::File,
    path: &Path,
    settings: Settings,
    options: Options,
) -> Result<Backing, OpenError> {
    let access = options.access();
    let failed = |error: Errno| refused(path, settings.cache, access, error.into());
    let mut flags = rustix::fs::fcntl_getfl(&file).map_err(failed)?;
    let is_open_for = match flags & OFlags::RWMODE {
        _ if flags.contains(OFlags::PATH) => None,
        OFlags::RDWR => Some(Access::ReadWrite),
        OFlags::RDONLY => Some(Access::ReadOnly),
        _ => None,
    };
    if is_open_for != Some(access) && is_open_for != Some(Access::ReadWrite) {
        return Err(failed(Errno::ACCESS));
    }
    // Others that hold it open see the change, too.
    flags.set(OFlags::DIRECT, settings.cache == Cache::None);
    flags.remove(OFlags::APPEND);
    rustix::fs::fcntl_setfl(&file, flags).map_err(failed)?;
    backing(file, path, settings, options)
}

fn backing(
    file: fs::File,
    path: &Path,
    settings: Settings,
    options: Options,
) -> Result<Backing, OpenError> {
    let cache = settings.cache;
    let failed = |doing| {
        move |source: io::Error| OpenError::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    let metadata = file.metadata().map_err(failed("look at"))?;
    let kind = disk_type(path, metadata.file_type())?;
    let hold = hold(&file, &metadata, kind, path, settings, options)?;
    let size = size(&file).map_err(failed("find the size of"))?;
    if settings.format == Format::Probe {
        let found = format::probe(&file, kind, size).map_err(failed("read"))?;
        if let Some(format) = found {
            let path = path.to_owned();
            return Err(OpenError::Format { path, format });
        }
    }
    let storage =
        storage_blocks(&file, kind, &metadata).map_err(failed("find the block size of"))?;
    let logical = storage.logical;
    let (block, alignment) = if cache == Cache::None {
        let direct = Direct::of(&file, &metadata, logical);
        let (block, alignment) = direct.block(path, options, logical)?;
        (block, Some(alignment))
    } else {
        (options.block(logical)?, None)
    };
    let limits = match kind {
        Kind::Regular => limits_of_file(&file, size, storage.physical, settings.lock),
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
        as_opened: abilities(geometry, limits),
        bytes: AtomicU64::new(geometry.bytes),
        growing: Mutex::default(),
        kind,
        residence: system::residence(kind, &file),
        file,
        path: path.to_owned(),
        settings,
        alignment,
        sector: logical,
        sync: Syncer::default(),
        nowait: NoWait::default(),
        punching: AtomicU32::new(0),
        log_quota: Quota::default(),
        hold,
    })
}

/// Locks the file, if it may be used like that.
fn hold(
    file: &fs::File,
    metadata: &fs::Metadata,
    kind: Kind,
    path: &Path,
    settings: Settings,
    options: Options,
) -> Result<Hold, OpenError> {
    let (cache, access) = (settings.cache, options.access());
    if let (Locked::Running, Coherence::OwnWrites(storage)) =
        (settings.lock, system::coherence(kind, file))
        && cache != Cache::None
    {
        let path = path.to_owned();
        return Err(OpenError::Incoherent { path, storage });
    }
    let hold = Hold::open(settings.lock, file, path, access)?;
    if let Some(device) = loops::over(metadata, access) {
        let path = path.to_owned();
        return Err(OpenError::Looped { path, device });
    }
    if kind == Kind::BlockDevice && access == Access::ReadWrite && refuses_writes(metadata) {
        return Err(refused(path, cache, access, Errno::ROFS.into()));
    }
    Ok(hold)
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
    let errno = Errno::from_io_error(&source);
    if let Some(folder) = closed_folder(path).filter(|_| errno == Some(Errno::ACCESS)) {
        return OpenError::ClosedFolder {
            path: path.to_owned(),
            folder: folder.to_owned(),
            source,
        };
    }
    let access = if forbids_reading(path) {
        Access::ReadOnly
    } else {
        access
    };
    let path = path.to_owned();
    match errno {
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

fn forbids_reading(path: &Path) -> bool {
    rustix::fs::access(path, Ask::READ_OK) == Err(Errno::ACCESS)
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

/// What direct I/O asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Direct {
    /// What addresses are to be a multiple of.
    memory: u32,
    /// What offsets and lengths are to be a multiple of.
    offset: u32,
}

impl Direct {
    /// As the file system tells, which Linux has done since 6.1, and not for every one; else what the device asks
    /// below.
    fn of(file: &fs::File, metadata: &fs::Metadata, logical: u32) -> Self {
        let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
        match told {
            Some(told) if told.stx_dio_offset_align > 0 => Self {
                memory: told.stx_dio_mem_align,
                offset: told.stx_dio_offset_align,
            },
            _ => Self::untold(logical.max(limits::block_below(metadata))),
        }
    }

    /// 4096 suits all the memory there is, on disks of that block size too.
    const fn untold(offset: u32) -> Self {
        let memory = 4096;
        Self { memory, offset }
    }

    /// The block size of the disk, and what the spans of a request are to be a multiple of.
    fn block(self, path: &Path, options: Options, logical: u32) -> Result<(u32, usize), OpenError> {
        let needed = self.offset.max(512);
        let block = options.block(needed.max(logical))?;
        if block < needed {
            return Err(OpenError::BlockBelowStorage {
                path: path.to_owned(),
                asked: block,
                needed,
            });
        }
        // Some storage asks less of addresses than of lengths; guests align both, so one number will do.
        let alignment = self.memory.max(self.offset);
        Ok((block, usize::try_from(alignment).expect("a u32 is a usize")))
    }
}

/// So far behind its end no process writes a file, not even one that has locked it and makes it longer at this moment.
const FAR: u64 = 1 << 40;

/// A file does what its file system does: it is asked behind the end whether it takes holes.
fn limits_of_file(file: &fs::File, size: u64, physical_block: u32, lock: Locked) -> Limits {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let behind = match lock {
        Locked::Always => 0,
        Locked::Running => FAR,
    };
    let at = size.next_multiple_of(4096).saturating_add(behind);
    let punched = retry_on_intr(|| fallocate(file, mode, at, 4096));
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
        // Where the storage cannot, zeroes are written.
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
mod tests;
