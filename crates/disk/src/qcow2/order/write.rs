//! What `imago` writes: at once, after something else, or when all is committed.

use std::io;

use rustix::io::Errno;

use super::bytes::{host_offset, joined, read_or_zero, write_all, write_changed, zero};
use super::{BLOCK_AT, ImageState, Kind, Stage, TABLE_AT};
use crate::qcow2::header::{field32, field64};

/// The part of the header that changes while an image is open: that of version 2.
const FIELDS: usize = 72;

impl ImageState {
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let cluster = self.header.cluster();
        let whole =
            |at: u64, bytes: &[u8]| at.is_multiple_of(cluster) && bytes.len() as u64 == cluster;
        match self.kind(at) {
            Kind::Header => self.write_header(at, bytes),
            Kind::L1 if bytes.len() == 8 => {
                if let Some(table) = host_offset(bytes, TABLE_AT) {
                    self.tables = joined(std::mem::take(&mut self.tables), table);
                    self.used(table + cluster);
                }
                self.pending.push((at, bytes.to_vec()));
                Ok(())
            }
            Kind::RefTable if bytes.len() == 8 => {
                self.owed.push((at, bytes.to_vec()));
                self.pay()
            }
            Kind::RefBlock if whole(at, bytes) => self.write_counts(at, bytes),
            Kind::L2 if whole(at, bytes) => {
                self.pay()?;
                self.lengthen_to_reach()?;
                if self.unsynced {
                    self.pass()?;
                }
                let mut old = vec![0; bytes.len()];
                read_or_zero(&self.file, &mut old, at)?;
                write_changed(&self.file, &old, bytes, at)
            }
            Kind::Other => {
                if at >= self.fresh && bytes.iter().all(|byte| *byte == 0) {
                    self.reach = self.reach.max(at + bytes.len() as u64);
                    return Ok(());
                }
                self.unsynced = true;
                self.used(at + bytes.len() as u64);
                write_all(&self.file, bytes, at)
            }
            kind => Err(misplaced(bytes.len() as u64, at, kind)),
        }
    }

    /// Zeroes, for data or a table that nothing refers to yet.
    pub(super) fn zero(&mut self, at: u64, len: u64) -> io::Result<()> {
        let kind = self.kind(at);
        if kind != Kind::Other {
            return Err(misplaced(len, at, kind));
        }
        if at >= self.fresh {
            self.reach = self.reach.max(at + len);
            return Ok(());
        }
        if !self.grows && at + len > self.len {
            return Err(Errno::NOSPC.into());
        }
        self.unsynced = true;
        zero(&self.file, at, len)
    }

    /// Nothing is written to an image of which it is not known what its header says.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.stage == Stage::Broken {
            return Err(io::Error::other(
                "its header could not be changed; open the image anew, and see what `qemu-img check` says",
            ));
        }
        Ok(())
    }

    /// Writes the entries of the refcount table that are to be written. `imago` counts in their blocks from now on,
    /// whatever becomes of this, so that nothing may rely on a count before it has succeeded.
    pub(super) fn pay(&mut self) -> io::Result<()> {
        while let Some((at, bytes)) = self.owed.first().cloned() {
            self.write_block_entry(at, &bytes)?;
            self.owed.remove(0);
        }
        Ok(())
    }

    /// An entry of the refcount table: a block that is new, and counted before.
    fn write_block_entry(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(block) = host_offset(bytes, BLOCK_AT) else {
            return self.write_between(at, bytes);
        };
        let end = block + self.header.cluster();
        self.used(end);
        self.lengthen(end)?;
        self.count(block)?;
        self.write_between(at, bytes)?;
        self.blocks = joined(std::mem::take(&mut self.blocks), block);
        Ok(())
    }

    /// What had to wait until all else is written.
    pub(super) fn write_pending(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pass()?;
        let cluster = self.header.cluster();
        for (at, bytes) in &self.pending {
            write_all(&self.file, bytes, *at)?;
        }
        let header = self.pending.iter().any(|(at, _)| *at < cluster);
        self.pending.clear();
        if header {
            let renewed = self.pass().and_then(|()| self.renew());
            return renewed.inspect_err(|_| self.stage = Stage::Broken);
        }
        Ok(())
    }

    /// The header: as it is opened all of it, later the fields of version 2.
    fn write_header(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let later = bytes.len() == FIELDS;
        if at != 0 || !(self.stage == Stage::Opening || later) {
            return Err(io::Error::other(
                "the image is damaged: its header would be overwritten; see what `qemu-img check` says",
            ));
        }
        let reftable = (field64(bytes, 48), field32(bytes, 56));
        let known = (self.header.reftable_at, self.header.reftable_clusters);
        if later && reftable == (Some(known.0), Some(known.1)) {
            self.pending.push((at, bytes.to_vec()));
            return Ok(());
        }
        let moved = self.move_refcounts(at, bytes);
        moved.inspect_err(|_| self.stage = Stage::Broken)
    }

    /// A header that says where the refcount table is now.
    fn move_refcounts(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.lengthen_to_reach()?;
        self.write_between(at, bytes)?;
        // It says what those that wait say, and the new table has all entries.
        self.pending.retain(|(at, _)| *at != 0);
        self.owed.clear();
        self.renew()
    }

    /// After all that came before, and before all that comes.
    fn write_between(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pass()?;
        write_all(&self.file, bytes, at)?;
        self.pass()
    }
}

fn misplaced(len: u64, at: u64, kind: Kind) -> io::Error {
    io::Error::other(format!(
        "the image is damaged: {len} bytes at {at:#x} would go where its {kind:?} is; see what `qemu-img check` says"
    ))
}
