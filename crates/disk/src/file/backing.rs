//! What each operation is to a file. All of it may block, and runs on the pool.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use pollux_memory::{Span, Spans};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tracing::{debug, error};

use super::Cache;
use super::bounce::{Buffer, PIECE, skip};
use super::sync::Syncer;
use crate::{Access, Durability, Failure, Geometry, Op, Unmap};

/// An open file and what there is to know of it.
#[derive(Debug)]
pub struct Backing {
    pub file: fs::File,
    pub path: PathBuf,
    pub geometry: Geometry,
    pub cache: Cache,
    /// With `cache=none`, what the address and length of every span must be a multiple of.
    pub alignment: Option<usize>,
    pub sync: Syncer,
}

impl Backing {
    /// Does `op`, which the geometry has let pass.
    ///
    /// # Errors
    ///
    /// Where the file fails. It is logged here.
    pub fn run(&self, op: &Op) -> Result<(), Failure> {
        match *op {
            Op::Read { at, into } => self.told("read", at, into.bytes(), self.read(at, into)),
            Op::Write {
                at,
                from,
                durability,
            } => {
                self.told("write", at, from.bytes(), self.write(at, from))?;
                self.settle(durability)
            }
            Op::Flush => self.flush(),
            Op::Discard { at, len } => match self.give_back(at, len) {
                Err(Errno::OPNOTSUPP) => Err(Failure::Unsupported),
                result => self.told("discard", at, len, result),
            },
            Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            } => {
                self.told("zero", at, len, self.zero(at, len, unmap))?;
                self.settle(durability)
            }
        }
    }

    fn told(
        &self,
        doing: &str,
        at: u64,
        len: u64,
        result: Result<(), Errno>,
    ) -> Result<(), Failure> {
        result.map_err(|error| {
            let path = self.path.display();
            error!(%path, at, len, %error, "cannot {doing}");
            Failure::Io(error)
        })
    }

    fn read(&self, at: u64, into: Spans) -> Result<(), Errno> {
        if self.takes(&into) {
            return transfer(&into, at, |spans, at| {
                pollux_memory::io::read_at(&self.file, spans, at)
            });
        }
        in_pieces(at, &into, |piece, at, spans| {
            whole(piece.len(), |moved| {
                rustix::io::pread(&self.file, &mut piece[moved..], at + moved as u64)
            })?;
            piece.scatter(spans);
            Ok(())
        })
    }

    fn write(&self, at: u64, from: Spans) -> Result<(), Errno> {
        if self.takes(&from) {
            return transfer(&from, at, |spans, at| {
                pollux_memory::io::write_at(&self.file, spans, at)
            });
        }
        in_pieces(at, &from, |piece, at, spans| {
            piece.gather(spans);
            self.write_bytes(piece, at)
        })
    }

    fn write_bytes(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        whole(bytes.len(), |moved| {
            rustix::io::pwrite(&self.file, &bytes[moved..], at + moved as u64)
        })
    }

    /// Can the file be read straight into `spans`?
    fn takes(&self, spans: &[Span]) -> bool {
        let Some(alignment) = self.alignment else {
            return true;
        };
        spans.iter().all(|span| {
            span.as_ptr().addr().is_multiple_of(alignment) && span.len().is_multiple_of(alignment)
        })
    }

    /// Makes what was just written as durable as it has to be.
    fn settle(&self, durability: Durability) -> Result<(), Failure> {
        match (durability, self.cache) {
            (Durability::Stable, _) | (_, Cache::Writethrough) => self.flush(),
            (Durability::Volatile, _) => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), Failure> {
        if self.geometry.access == Access::ReadOnly {
            return Ok(());
        }
        let synced = self.sync.sync(|| {
            uninterrupted(|| rustix::fs::fdatasync(&self.file)).inspect_err(|error| {
                let path = self.path.display();
                error!(%path, %error, "cannot put data on stable storage: some of what was written \
                    may be lost. Every flush fails until the disk is opened anew");
            })
        });
        synced.map_err(|error| {
            debug!(path = %self.path.display(), %error, "a flush failed, now or before");
            Failure::Io(error)
        })
    }

    fn give_back(&self, at: u64, len: u64) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        uninterrupted(|| rustix::fs::fallocate(&self.file, mode, at, len))
    }

    /// Zeroes in the best way there is: a hole where that is allowed, zeroes that the file system
    /// keeps in its books, or zeroes written one by one.
    fn zero(&self, at: u64, len: u64, unmap: Unmap) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        if unmap == Unmap::Allowed {
            match self.give_back(at, len) {
                Err(Errno::OPNOTSUPP) => {}
                result => return result,
            }
        }
        let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match uninterrupted(|| rustix::fs::fallocate(&self.file, mode, at, len)) {
            Err(Errno::OPNOTSUPP) => self.write_zeroes(at, len),
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
    mut at: u64,
    spans: &Spans,
    each: impl Fn(&mut Buffer, u64, &[Span]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut left = spans.bytes();
    let mut piece = Buffer::new(left);
    let mut rest = Cow::Borrowed(&**spans);
    while left > 0 {
        piece.truncate(usize::try_from(left).unwrap_or(PIECE));
        each(&mut piece, at, &rest)?;
        at += piece.len() as u64;
        left -= piece.len() as u64;
        rest = Cow::Owned(skip(&rest, piece.len()));
    }
    Ok(())
}

/// Repeats `call` until it has covered all of `spans`, which it may do in part only.
fn transfer(
    spans: &[Span],
    mut at: u64,
    call: impl Fn(&[Span], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut rest = Cow::Borrowed(spans);
    while rest.iter().any(|span| !span.is_empty()) {
        let moved = some(call(&rest, at)?)?;
        at += moved as u64;
        rest = Cow::Owned(skip(&rest, moved));
    }
    Ok(())
}

/// Repeats `call`, which is told how much it has moved so far, until that is `len`.
fn whole(len: usize, mut call: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut moved = 0;
    while moved < len {
        match call(moved) {
            Err(Errno::INTR) => {}
            more => moved += some(more?)?,
        }
    }
    Ok(())
}

/// Nothing moved, although the disk should hold more: the file has been cut shorter meanwhile.
fn some(moved: usize) -> Result<usize, Errno> {
    if moved == 0 {
        return Err(Errno::NODATA);
    }
    Ok(moved)
}

fn uninterrupted(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
