//! One region of a peer's memory, mapped into this process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::fstatfs;
use rustix::mm::{MapFlags, ProtFlags};
use vm_memory::{FileOffset, MmapRegion};

use crate::address_space::Room;
use crate::guard::Guard;
use crate::{Alarm, Span};

/// `f_type` of hugetlbfs, whose mappings start and end at multiples of its page size.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// `f_type` of the file systems that bring a page in by themselves: tmpfs (a memfd's), ramfs, ext2 to ext4, XFS, Btrfs
/// and F2FS. Elsewhere another process or machine may have to, as on FUSE, on NFS, or where an overlay has such a layer.
const OWN_PAGES: [u64; 6] = [
    0x0102_1994,
    0x8584_58f6,
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
];

/// `f_type` of what has no file: an `io_uring`, a virtual processor, a counter. What is mapped of those is no memory
/// but a conversation with the kernel, which acts on it: a write to the ring of an `io_uring` has it write anywhere.
const ANON_INODE_MAGIC: u64 = 0x0904_1934;

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The peer described a region that cannot exist.
    #[error(
        "the region at {guest:#x} of {len:#x} bytes is empty or wraps around the address space"
    )]
    Extent {
        /// Guest-physical address of its first byte.
        guest: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// The file that backs it could not be mapped.
    #[error("cannot map {len:#x} bytes at offset {offset:#x} of the region's file")]
    Map {
        /// The length asked for, in bytes.
        len: u64,
        /// Where in the file.
        offset: u64,
        /// What the kernel, or the check against the file's size, said.
        source: io::Error,
    },
    /// This process has no room for it.
    #[error(
        "this process has no addresses left for a region of {len:#x} bytes; share less memory, or serve fewer disks with it"
    )]
    NoRoom {
        /// The length asked for, in bytes.
        len: u64,
    },
    /// Its pages may come from another process or machine, which could keep a thread that touches them waiting for ever.
    #[error(
        "the region's file is on a file system (type {kind:#x}) that may have to wait for others to bring a page in; \
         share a memfd, or a file on tmpfs, hugetlbfs, ext4, XFS, Btrfs or F2FS"
    )]
    FileSystem {
        /// `f_type` of the file system.
        kind: u64,
    },
    /// What would be mapped is no memory.
    #[error(
        "the region's descriptor is not one of memory; share a memfd, or a file on tmpfs or hugetlbfs"
    )]
    NotMemory,
}

/// One region of a peer's memory. It is unmapped when the last owner lets go.
#[derive(Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    len: u64,
    /// What precedes the region in the mapping, which starts at a page of its file.
    lead: usize,
    /// Before `mapping`, so that it goes first.
    guard: Guard,
    mapping: MmapRegion,
    _room: Option<Room>,
}

impl Region {
    /// Maps `len` bytes of `file` at `offset`, which the peer calls `guest` (guest-physical) in its
    /// descriptors and `user` (its own virtual address) in vhost-user messages.
    ///
    /// # Errors
    ///
    /// When the region is empty, wraps, is longer than its file, or cannot be mapped. A file that is cut
    /// short later, or turns out to have no room, is survived: see [`Region::is_torn`].
    pub fn map(file: File, offset: u64, guest: u64, user: u64, len: u64) -> Result<Self, MapError> {
        let extent = MapError::Extent { guest, len };
        let wraps = guest.checked_add(len).is_none() || user.checked_add(len).is_none();
        if len == 0 || wraps || offset.checked_add(len).is_none() {
            return Err(extent);
        }
        let failed = |source: io::Error| MapError::Map {
            len,
            offset,
            source,
        };
        let there = file.metadata().map_err(failed)?;
        if !there.is_file() {
            return Err(MapError::NotMemory);
        }
        if there.len() < offset + len {
            let message = format!("the file has only {:#x} bytes", there.len());
            return Err(failed(io::Error::other(message)));
        }
        let page = page_size(&file).map_err(failed)??;
        let lead = offset % page.offset;
        let size = (lead + len).next_multiple_of(page.len);
        let [Ok(lead), Ok(size), Ok(page)] = [lead, size, page.offset].map(usize::try_from) else {
            return Err(extent);
        };
        let mapping = MmapRegion::build(
            Some(FileOffset::new(file, offset - lead as u64)),
            size,
            (ProtFlags::READ | ProtFlags::WRITE).bits().cast_signed(),
            (MapFlags::SHARED | MapFlags::NORESERVE)
                .bits()
                .cast_signed(),
        )
        .map_err(|error| failed(io::Error::other(error)))?;
        let start = mapping.as_ptr().expose_provenance();
        let guard = Guard::new(&(start..start + size), page);
        Ok(Self {
            guest,
            user,
            len,
            lead,
            guard,
            mapping,
            _room: None,
        })
    }

    /// As [`Region::map`], for a peer that may share more than it has: what all such regions of a process take together
    /// is bounded.
    ///
    /// # Errors
    ///
    /// As for [`Region::map`], and when there is no room left.
    pub fn of_peer(
        file: File,
        offset: u64,
        guest: u64,
        user: u64,
        len: u64,
    ) -> Result<Self, MapError> {
        let region = Self::map(file, offset, guest, user, len)?;
        let room = Room::take(region.mapping.size() as u64).ok_or(MapError::NoRoom { len })?;
        Ok(Self {
            _room: Some(room),
            ..region
        })
    }

    /// The same region, which rings `alarm` when it is lost.
    ///
    /// # Panics
    ///
    /// When it has an alarm, which may be ringing.
    #[must_use]
    pub fn with_alarm(mut self, alarm: Arc<Alarm>) -> Self {
        self.guard.set_alarm(alarm);
        self
    }

    /// Has the peer taken the memory away, so that zeroes of our own are in its place? Known once
    /// a thread has tried to touch what is gone.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.guard.is_torn()
    }

    /// Is the file shorter than the region by now, so that no process can map it any more?
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let (file, offset) = self.file();
        let there = file.metadata();
        there.is_ok_and(|there| there.len() < offset + self.len)
    }

    /// Rings the alarm, if it has one: it cannot be used as it was meant to be.
    pub fn ring_alarm(&self) {
        self.guard.ring_alarm();
    }

    /// Guest-physical address of its first byte.
    #[must_use]
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// The peer's own virtual address of its first byte.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// Its length in bytes.
    #[allow(
        clippy::len_without_is_empty,
        reason = "an empty region cannot be made"
    )]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The file behind it and where in the file it starts, to pass it on to another process.
    #[must_use]
    pub fn file(&self) -> (&File, u64) {
        let backing = self
            .mapping
            .file_offset()
            .expect("every region is mapped from a file");
        (backing.file(), backing.start() + self.lead as u64)
    }

    /// The addresses that it has in this process.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let start = self.start().addr().get();
        start..start + self.bytes()
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: `lead` is less than the mapping's length.
        let start = unsafe { self.mapping.as_ptr().add(self.lead) };
        NonNull::new(start).expect("a mapping is never at address 0")
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.len).expect("a mapping has a usize length")
    }

    /// All of it, to be lent.
    ///
    /// # Safety
    ///
    /// The region is kept until the span is used no more, nor a copy or part of it, nor what was made of those
    /// ([`Span::new`]).
    #[must_use]
    pub unsafe fn span(&self) -> Span {
        // SAFETY: mapped readable and writable until `self` is dropped, which the caller sees to. All access is by
        // spans: no reference into the mapping is ever formed.
        unsafe { Span::new(self.start(), self.bytes()) }
    }

    /// The `len` bytes from `at`, if they lie inside.
    ///
    /// # Safety
    ///
    /// As for [`Region::span`].
    #[must_use]
    pub(crate) unsafe fn slice(&self, at: u64, len: u64) -> Option<Span> {
        let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
        // SAFETY: by this function's own promise.
        unsafe { self.span() }.slice(at, len)
    }

    /// Copies what is at `at` into all of `into`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.part(at, into.len(), |part| part.read(into));
    }

    /// Overwrites what is at `at` with all of `from`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn write(&self, at: usize, from: &[u8]) {
        self.part(at, from.len(), |part| part.write(from));
    }

    /// Hands the `len` bytes at `at` to `copy`, which does not keep them.
    fn part(&self, at: usize, len: usize, copy: impl FnOnce(Span)) {
        // SAFETY: `self` is borrowed until this returns, and by then the span is used no more.
        let Some(part) = (unsafe { self.span() }).slice(at, len) else {
            panic!("{len} bytes at {at} of a region of {}", self.len);
        };
        copy(part);
    }
}

/// What a mapping of a file must be a multiple of: where it starts, and how long it is.
struct Granularity {
    offset: u64,
    len: u64,
}

/// What the file system demands; or why nothing is mapped of it.
fn page_size(file: &File) -> io::Result<Result<Granularity, MapError>> {
    let filesystem = fstatfs(file)?;
    let page = rustix::param::page_size() as u64;
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the field's type differs between targets"
    )]
    let (kind, block) = (filesystem.f_type as u64, filesystem.f_bsize as u64);
    Ok(match kind {
        ANON_INODE_MAGIC => Err(MapError::NotMemory),
        HUGETLBFS_MAGIC if block.is_power_of_two() && block >= page => Ok(Granularity {
            offset: block,
            len: block,
        }),
        kind if OWN_PAGES.contains(&kind) => Ok(Granularity {
            offset: page,
            len: 1,
        }),
        kind => Err(MapError::FileSystem { kind }),
    })
}
