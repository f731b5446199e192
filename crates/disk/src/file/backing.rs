//! What each operation is to a file: at once where nothing has to be waited for, else by a thread that
//! may block.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pollux_memory::io::Flow;
use pollux_memory::{Span, Spans};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use tracing::error;

use super::bounce::{Buffer, PIECE};
use super::calls::{some, whole};
use super::format;
use super::hold::Hold;
use super::nowait::NoWait;
use super::settings::{Cache, Format, Settings};
use super::size::{size, whole_blocks};
use super::sync::{Joined, Settle, Syncer, Waiter};
use super::system::{Kind, Residence};
use crate::{Access, Admitted, Durability, Failure, Geometry, Op, OpenError, Quota, Unmap};

/// The longest hole that is punched at once where the file is in memory: a worker that has begun to copy waits as long.
const HOLE: u64 = 256 << 10;

/// An open file and what there is to know of it.
#[derive(Debug)]
pub struct Backing {
    pub kind: Kind,
    pub file: fs::File,
    pub path: PathBuf,
    /// What there was to say when it was opened.
    pub as_opened: Geometry,
    /// Its size, which others may change while they hold it.
    pub bytes: AtomicU64,
    /// Held while it is made longer: of two threads neither cuts off what the other has added.
    pub growing: Mutex<()>,
    pub settings: Settings,
    pub residence: Residence,
    /// With `cache=none`, what the address and length of every span must be a multiple of.
    pub alignment: Option<usize>,
    /// Of a block device, the smallest piece that can be given back; the disk may have smaller blocks.
    pub sector: u32,
    pub sync: Syncer,
    pub nowait: NoWait,
    /// How many threads punch holes into a file in memory: copies to it wait for their lock.
    pub punching: AtomicU32,
    /// How much is said of what fails: a guest that goes on writing to a full disk must not fill the log's disk as well.
    pub log_quota: Quota,
    pub hold: Hold,
}

impl Backing {
    /// What there is to say now.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.load(Ordering::Relaxed),
            ..self.as_opened
        }
    }

    /// Does `op`, which the geometry has let pass, apart from what [`Backing::settle`] does. It may block.
    ///
    /// # Errors
    ///
    /// Where the file fails. It is logged here.
    pub fn run(&self, op: &Op) -> Result<(), Failure> {
        match *op {
            Op::Read { at, into } => self.told("read", at, into.bytes(), self.read(at, into)),
            Op::Write { at, from, .. } if self.guards(at, from.bytes()) => {
                self.write_guarded(at, from)
            }
            Op::Write { at, from, .. } => {
                self.told("write", at, from.bytes(), self.write(at, from))
            }
            Op::Flush => Ok(()),
            Op::Discard { at, len } => match self.give_back(at, len) {
                Err(Errno::OPNOTSUPP) => Err(Failure::Unsupported),
                result => self.told("discard", at, len, result),
            },
            Op::WriteZeroes { at, len, unmap, .. } => {
                self.told("zero", at, len, self.zero(at, len, unmap))
            }
        }
    }

    /// Logs what failed, and says it to the guest.
    pub fn told(
        &self,
        doing: &str,
        at: u64,
        len: u64,
        result: Result<(), Errno>,
    ) -> Result<(), Failure> {
        result.map_err(|error| {
            if let Some(Admitted { withheld }) = self.log_quota.admits() {
                let path = self.path.display();
                let error = explained(error);
                error!(%path, at, len, %error, withheld, "cannot {doing}");
            }
            Failure::Io(error)
        })
    }

    /// When `op` is complete.
    pub fn settles(&self, op: &Op) -> Settle {
        let nothing_to_sync =
            self.residence == Residence::Memory || self.as_opened.access == Access::ReadOnly;
        if nothing_to_sync {
            return Settle::Done;
        }
        match op {
            Op::Flush => Settle::Synced,
            Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                match (durability, self.settings.cache) {
                    (Durability::Stable, _) | (_, Cache::Writethrough) => Settle::Synced,
                    (Durability::Volatile, _) => Settle::Done,
                }
            }
            Op::Read { .. } | Op::Discard { .. } => Settle::Done,
        }
    }

    /// Tells `waiter` once what was done before is on stable storage. It may block.
    pub fn settle(&self, waiter: Waiter) -> Joined {
        let joined = self.sync.join(waiter);
        if joined == Joined::Leader {
            self.lead_syncs();
        }
        joined
    }

    /// Syncs for all that wait. It blocks.
    pub fn lead_syncs(&self) {
        self.sync.lead(|| self.put_on_storage());
    }

    fn put_on_storage(&self) -> Result<(), Errno> {
        retry_on_intr(|| rustix::fs::fdatasync(&self.file)).inspect_err(|error| {
            let path = self.path.display();
            error!(%path, %error, "cannot put data on stable storage: some of what was written \
                may be lost. Every flush fails until the disk is opened anew");
        })
    }

    /// Requests follow: see [`Disk::acquire`](crate::Disk::acquire). It may block.
    pub fn acquire(&self) -> Result<(), OpenError> {
        let Geometry { access, block, .. } = self.as_opened;
        self.hold.acquire(&self.file, &self.path, access, || {
            let size = size(&self.file).map_err(|source| OpenError::Io {
                doing: "find the size of",
                path: self.path.clone(),
                source,
            })?;
            let bytes = whole_blocks(&self.path, size, block)?;
            self.bytes.store(bytes, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Requests have ended: see [`Disk::release`](crate::Disk::release). It may block.
    ///
    /// The next user, on another machine perhaps, reads what the storage holds; where that is not all that
    /// was written, no other gets the disk.
    pub fn release(&self) -> io::Result<()> {
        let settled = || match self.settles(&Op::Flush) {
            Settle::Done => Ok(()),
            Settle::Synced => self.sync.alone(|| self.put_on_storage()),
        };
        Ok(self.hold.release(settled)?)
    }

    fn read(&self, at: u64, into: Spans) -> Result<(), Errno> {
        if self.takes(&into) {
            return self.copy(Flow::FromFile, at, into);
        }
        in_pieces(at, into, |piece, at, spans| {
            whole(piece.len(), |moved| {
                rustix::io::pread(&self.file, &mut piece[moved..], at + moved as u64)
            })?;
            piece.scatter(spans);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: Spans) -> Result<(), Errno> {
        if self.takes(&from) {
            return self.copy(Flow::ToFile, at, from);
        }
        in_pieces(at, from, |piece, at, spans| {
            piece.gather(spans);
            self.write_bytes(piece, at)
        })
    }

    /// Could a write of such bytes make an image of another format of the disk?
    #[inline]
    pub fn guards(&self, at: u64, len: u64) -> bool {
        self.settings.format == Format::Probe
            && (at < format::SIGNED
                || at + len > self.bytes.load(Ordering::Relaxed) - format::SIGNED)
    }

    /// From a buffer of our own, since the guest can change its memory after it was checked.
    fn write_guarded(&self, at: u64, from: Spans) -> Result<(), Failure> {
        let mut refused = None;
        let end = self.bytes.load(Ordering::Relaxed);
        let written = in_pieces(at, from, |piece, at, spans| {
            piece.gather(spans);
            refused = format::within(piece, at, end, self.kind);
            match refused {
                Some(_) => Err(Errno::PERM),
                None => self.write_bytes(piece, at),
            }
        });
        let doing = match refused {
            Some(format) => &format!(
                "let the guest make a {format} image of its disk, which would not be opened again; \
                 `format=raw` allows it: write"
            ),
            None => "write",
        };
        self.told(doing, at, from.bytes(), written)
    }

    /// Moves all of `spans` by as many calls as it takes, without a buffer of our own.
    pub fn copy(&self, flow: Flow, at: u64, spans: Spans) -> Result<(), Errno> {
        let mut moved = 0;
        let bytes = spans.bytes();
        while moved < bytes {
            let rest = match moved {
                0 => Cow::Borrowed(&*spans),
                _ => Cow::Owned(spans.skip(moved)),
            };
            let more = match flow {
                Flow::FromFile => pollux_memory::io::read_at(&self.file, &rest, at + moved),
                Flow::ToFile => pollux_memory::io::write_at(&self.file, &rest, at + moved),
            };
            moved += some(more?)? as u64;
        }
        Ok(())
    }

    fn write_bytes(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        whole(bytes.len(), |moved| {
            rustix::io::pwrite(&self.file, &bytes[moved..], at + moved as u64)
        })
    }

    /// Can the file be read straight into `spans`?
    #[inline]
    pub fn takes(&self, spans: &[Span]) -> bool {
        let Some(alignment) = self.alignment else {
            return true;
        };
        spans.iter().all(|span| {
            span.as_ptr().addr().is_multiple_of(alignment) && span.len().is_multiple_of(alignment)
        })
    }

    /// What is given back need not read as zeroes.
    fn give_back(&self, at: u64, len: u64) -> Result<(), Errno> {
        match self.kind {
            _ if len == 0 => Ok(()),
            Kind::Regular => self.punch(at, len),
            Kind::BlockDevice => self.discard_sectors(at, len),
        }
    }

    /// A device refuses parts of its sectors: they are kept.
    fn discard_sectors(&self, at: u64, len: u64) -> Result<(), Errno> {
        let sector = u64::from(self.sector);
        let (from, end) = (at.next_multiple_of(sector), at + len);
        let len = (end - end % sector).saturating_sub(from);
        if len == 0 {
            return Ok(());
        }
        retry_on_intr(|| pollux_memory::file::discard_blocks(&self.file, from, len))
    }

    /// What lies in a hole reads as zeroes, on a block device too, which may give its blocks back.
    fn punch(&self, at: u64, len: u64) -> Result<(), Errno> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let piece = |at, len| retry_on_intr(|| rustix::fs::fallocate(&self.file, mode, at, len));
        if self.residence == Residence::Storage {
            return piece(at, len);
        }
        self.punching.fetch_add(1, Ordering::Relaxed);
        let pieces = (0..len.div_ceil(HOLE)).map(|nr| (at + nr * HOLE, HOLE.min(len - nr * HOLE)));
        let punched = { pieces }.try_for_each(|(at, len)| piece(at, len));
        self.punching.fetch_sub(1, Ordering::Relaxed);
        punched
    }

    /// Zeroes in the best way there is: a hole where that is allowed, zeroes that the file system
    /// keeps in its books, or zeroes written one by one. A block device says INVAL for parts of its sectors.
    fn zero(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        if unmap == Unmap::Allowed {
            match self.punch(at, len) {
                Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
                result => return result,
            }
        }
        let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, mode, at, len)) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => self.write_zeroes(at, len),
            result => result,
        }
    }

    fn write_zeroes(&self, at: u64, len: u64) -> Result<(), Errno> {
        let mut zeroes = Buffer::new(len);
        let mut done = 0;
        while done < len {
            zeroes.truncate(usize::try_from(len - done).unwrap_or(PIECE));
            self.write_bytes(&zeroes, at + done)?;
            done += zeroes.len() as u64;
        }
        Ok(())
    }
}

/// Calls `each` with a buffer, where on the disk it belongs, and the spans it belongs to, until
/// all of `spans` has been covered.
fn in_pieces(
    at: u64,
    spans: Spans,
    mut each: impl FnMut(&mut Buffer, u64, &[Span]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let bytes = spans.bytes();
    let mut piece = Buffer::new(bytes);
    let mut done = 0;
    while done < bytes {
        piece.truncate(usize::try_from(bytes - done).unwrap_or(PIECE));
        each(&mut piece, at + done, &spans.skip(done))?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// For the log. One error is ours as well: of a file that ends too early.
fn explained(error: Errno) -> String {
    match error {
        Errno::NODATA => format!("{error}: the file was made shorter, or the medium is damaged"),
        error => error.to_string(),
    }
}
