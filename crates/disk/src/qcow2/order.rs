//! The order in which metadata reaches the storage.
//!
//! `imago` decides what the tables of an image hold; here is decided when the file holds it. All that a completed
//! request rests on is in the file (in its page cache) before the request completes, so that nothing is lost with the
//! process. And nothing gets there before what it refers to is on stable storage, so that what the power leaves is an
//! image without an error:
//!
//! | what | comes after, on stable storage |
//! |---|---|
//! | a higher reference count | |
//! | an entry of an L2 table | the counts, and what was copied into the cluster; see *fresh* |
//! | an entry of the L1 table | the L2 table, and its count |
//! | an entry of the refcount table, or a field of the header | all that was written before |
//! | a lower reference count; a write to a freed cluster | the L2 entries without it |
//!
//! A cluster beyond all that were ever used is *fresh*: it lies in a hole of the file, and reads as zeroes whether or not
//! what was written to it got there. Zeroes are not written to it, and an L2 entry need not wait for it.

mod bytes;
mod look;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::barrier::Barrier;
use super::header::{Header, Refusal, field32, field64};
use super::refcounts::Block;
use bytes::{entries, joined, place, write_changed};
pub use bytes::{read_or_zero, write_all, zero};

/// As many refcount blocks are kept whose decreases are held back.
const MAX_BLOCKS: usize = 64;
/// The bits of an L1 entry that say where its table is.
const TABLE_AT: u64 = 0x00ff_ffff_ffff_fe00;
/// And those of an entry of the refcount table.
const BLOCK_AT: u64 = !511;

/// The part of the header that changes while an image is open: that of version 2.
const FIELDS: usize = 72;

/// What is written, and when.
#[derive(Debug)]
pub struct Order(Mutex<State>);

#[derive(Debug)]
struct State {
    file: fs::File,
    header: Header,
    /// Where the L2 tables are, in order.
    tables: Vec<u64>,
    /// Where the refcount blocks are, in order.
    blocks: Vec<u64>,
    unsettled: HashMap<u64, Block>,
    /// Writes that wait for [`Order::commit`].
    pending: Vec<(u64, Vec<u8>)>,
    /// Something was written that L2 entries must not come before.
    unsynced: bool,
    /// Nothing uses it yet.
    opening: bool,
    /// From here on, nothing was ever used.
    fresh: u64,
    /// As far go the clusters that are in use: fresh ones whose zeroes were not written are so until others may write them.
    reach: u64,
    opened_len: u64,
    len: u64,
    barrier: Barrier,
}

/// What lies somewhere in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Header,
    L1,
    RefTable,
    RefBlock,
    L2,
    /// Data, or a table that nothing refers to yet.
    Other,
}

impl Order {
    /// That of the image in `file`, which is open for writing.
    ///
    /// # Errors
    ///
    /// What the machine says; inside, what is wrong with the tables.
    pub fn new(
        file: fs::File,
        header: Header,
        barrier: Barrier,
    ) -> io::Result<Result<Self, Refusal>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Err(Refusal::BlockDevice));
        }
        let len = metadata.len();
        let whole = len.next_multiple_of(header.cluster());
        // A cluster that ends behind the file is one that cannot be read in full.
        file.set_len(whole)?;
        let mut state = State {
            file,
            header,
            tables: Vec::new(),
            blocks: Vec::new(),
            unsettled: HashMap::new(),
            pending: Vec::new(),
            unsynced: true,
            opening: true,
            fresh: whole,
            reach: whole,
            opened_len: whole,
            len: whole,
            barrier,
        };
        Ok(state.look()?.map(|()| Self(Mutex::new(state))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `bytes` with what `imago` has written at `at`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.state();
        let start = at & !(state.header.cluster() - 1);
        if let Some(block) = state.unsettled.get(&start) {
            let from = usize::try_from(at - start).expect("less than a cluster");
            if let Some(there) = block.wanted().get(from..from + bytes.len()) {
                bytes.copy_from_slice(there);
                return Ok(());
            }
        }
        read_or_zero(&state.file, bytes, at)
    }

    /// `imago` writes `bytes` at `at`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written, or what comes before is not on stable storage.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.state().write(at, bytes)
    }

    /// `imago` writes zeroes.
    ///
    /// # Errors
    ///
    /// As for [`Order::write`].
    pub fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        if at >= state.fresh {
            state.reach = state.reach.max(at + len);
            return Ok(());
        }
        state.unsynced = true;
        zero(&state.file, at, len)
    }

    /// The image is open: what its header says of it does not change any more.
    pub fn opened(&self) {
        self.state().opening = false;
    }

    /// Is there a table of the image at `at`? An image from elsewhere may say that there is data.
    pub fn is_table(&self, at: u64) -> bool {
        self.state().kind(at) != Kind::Other
    }

    /// Is the cluster at `at` in the file, and none of its tables?
    pub fn is_data(&self, at: u64) -> bool {
        let state = self.state();
        at.checked_add(state.header.cluster())
            .is_some_and(|end| end <= state.len)
            && state.kind(at) == Kind::Other
    }

    /// `len` bytes of data are about to be written at `at`, to a cluster that nothing refers to yet.
    pub fn wrote(&self, at: u64, len: u64) {
        let mut state = self.state();
        if at < state.fresh {
            state.unsynced = true;
        }
        state.used(at + len);
    }

    /// Data was written elsewhere that L2 entries must not come before.
    pub fn depends(&self) {
        self.state().unsynced = true;
    }

    /// Before `imago` writes back what has changed: the clusters that are in use are in the file.
    ///
    /// # Errors
    ///
    /// Where the file cannot be made longer.
    pub fn prepare(&self) -> io::Result<()> {
        let mut state = self.state();
        let reach = state.reach;
        state.used(reach);
        state.lengthen_to_reach()
    }

    /// After `imago` has written back what has changed: writes what had to wait.
    ///
    /// # Errors
    ///
    /// As for [`Order::write`].
    pub fn commit(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.pending.is_empty() {
            return Ok(());
        }
        state.pass()?;
        let cluster = state.header.cluster();
        for (at, bytes) in &state.pending {
            write_all(&state.file, bytes, *at)?;
        }
        let header = state.pending.iter().any(|(at, _)| *at < cluster);
        state.pending.clear();
        if header {
            state.pass()?;
            return state.renew();
        }
        Ok(())
    }

    /// Whatever was written is on stable storage once this has returned.
    ///
    /// # Errors
    ///
    /// Where it is not: and never will be, until the disk is opened anew.
    pub fn pass(&self) -> io::Result<()> {
        self.state().pass()
    }

    /// Writes the decreases that were held back. What was freed is not referred to any more on stable storage.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn settle(&self) -> io::Result<()> {
        self.state().settle(false)
    }

    /// Everything is written and on stable storage: gives the reserve back.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn close(&self) -> io::Result<()> {
        let mut state = self.state();
        state.settle(true)?;
        if state.len > state.opened_len {
            let end = state.fresh.max(state.opened_len);
            state.file.set_len(end)?;
            state.len = end;
        }
        Ok(())
    }
}

impl State {
    /// A field of the header has changed.
    fn renew(&mut self) -> io::Result<()> {
        let mut first = [0; 104];
        read_or_zero(&self.file, &mut first, 0)?;
        self.header.size = field64(&first, 24).unwrap_or(0);
        self.header.l1_entries = field32(&first, 36).unwrap_or(0);
        self.header.l1_at = field64(&first, 40).unwrap_or(0);
        self.header.reftable_at = field64(&first, 48).unwrap_or(0);
        self.header.reftable_clusters = field32(&first, 56).unwrap_or(0);
        self.look_up()?.map_err(io::Error::other)
    }

    /// What has a place in the header.
    fn fixed(&self, at: u64) -> Option<Kind> {
        let header = &self.header;
        let within = |start: u64, len: u64| (start..start.saturating_add(len)).contains(&at);
        let l1 = (u64::from(header.l1_entries) * 8).next_multiple_of(header.cluster());
        let reftable = u64::from(header.reftable_clusters) << header.cluster_bits;
        if at < header.cluster() {
            Some(Kind::Header)
        } else if within(header.l1_at, l1) {
            Some(Kind::L1)
        } else if within(header.reftable_at, reftable) {
            Some(Kind::RefTable)
        } else {
            None
        }
    }

    fn kind(&self, at: u64) -> Kind {
        let start = at & !(self.header.cluster() - 1);
        if let Some(kind) = self.fixed(start) {
            kind
        } else if self.tables.binary_search(&start).is_ok() {
            Kind::L2
        } else if self.blocks.binary_search(&start).is_ok() {
            Kind::RefBlock
        } else {
            Kind::Other
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let cluster = self.header.cluster();
        let whole =
            |at: u64, bytes: &[u8]| at.is_multiple_of(cluster) && bytes.len() as u64 == cluster;
        match self.kind(at) {
            Kind::Header => self.write_header(at, bytes),
            Kind::L1 if bytes.len() == 8 => {
                if let Some(table) = place(bytes, TABLE_AT) {
                    self.tables = joined(std::mem::take(&mut self.tables), table);
                    self.used(table + cluster);
                }
                self.pending.push((at, bytes.to_vec()));
                Ok(())
            }
            Kind::RefTable if bytes.len() == 8 => {
                let block = place(bytes, BLOCK_AT);
                let end = block.map_or(0, |block| block + cluster);
                self.used(end);
                self.lengthen(end)?;
                self.write_between(at, bytes)?;
                if let Some(block) = block {
                    self.blocks = joined(std::mem::take(&mut self.blocks), block);
                }
                Ok(())
            }
            Kind::RefBlock if whole(at, bytes) => self.write_counts(at, bytes),
            Kind::L2 if whole(at, bytes) => {
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
            kind => Err(io::Error::other(format!(
                "the image is damaged: {} bytes at {at:#x} would go where its {kind:?} is; see what \
                 `qemu-img check` says",
                bytes.len()
            ))),
        }
    }

    /// The header: as it is opened all of it, later the fields of version 2.
    fn write_header(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let later = bytes.len() == FIELDS;
        if at != 0 || !(self.opening || later) {
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
        self.lengthen_to_reach()?;
        self.write_between(at, bytes)?;
        self.renew()
    }

    /// After all that came before, and before all that comes.
    fn write_between(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.pass()?;
        write_all(&self.file, bytes, at)?;
        self.pass()
    }

    /// A refcount block, which `imago` writes as a whole.
    fn write_counts(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.unsettled.contains_key(&at) {
            if self.unsettled.len() >= MAX_BLOCKS {
                self.pass()?;
                self.settle(false)?;
                self.unsettled.clear();
            }
            let mut stored = vec![0; bytes.len()];
            read_or_zero(&self.file, &mut stored, at)?;
            let block = Block::new(stored, self.header.refcount_order);
            self.unsettled.insert(at, block);
        }
        let Some(block) = self.unsettled.get_mut(&at) else {
            return Ok(());
        };
        if let Some((high, covered)) = block.want(bytes.to_vec()) {
            // Before anything of it may be told: what fails half-way is a leak.
            self.unsynced = true;
            write_changed(&self.file, block.stored(), &high, at)?;
            block.has_stored(high);
            let end =
                self.block_start(at, bytes.len()) + ((covered as u64) << self.header.cluster_bits);
            self.lengthen(end)?;
        }
        Ok(())
    }

    /// The first byte of the file that the refcount block at `at` counts.
    fn block_start(&self, at: u64, len: usize) -> u64 {
        let reftable = u64::from(self.header.reftable_clusters) << self.header.cluster_bits;
        let counts = super::refcounts::count(len, self.header.refcount_order) as u64;
        let entries = entries(&self.file, self.header.reftable_at, reftable).unwrap_or_default();
        let number = entries.iter().position(|entry| entry & BLOCK_AT == at);
        number.map_or(0, |number| {
            (number as u64 * counts) << self.header.cluster_bits
        })
    }

    fn settle(&mut self, closing: bool) -> io::Result<()> {
        for (at, block) in &mut self.unsettled {
            let settled = block.settled(closing);
            write_changed(&self.file, block.stored(), &settled, *at)?;
            block.has_stored(settled);
        }
        self.unsettled.retain(|_, block| !block.is_settled());
        Ok(())
    }

    fn pass(&mut self) -> io::Result<()> {
        self.barrier.pass()?;
        self.unsynced = false;
        Ok(())
    }

    fn used(&mut self, end: u64) {
        let end = end.next_multiple_of(self.header.cluster());
        self.fresh = self.fresh.max(end);
    }

    /// All that is in use is in the file.
    fn lengthen_to_reach(&mut self) -> io::Result<()> {
        let reach = self.reach.next_multiple_of(self.header.cluster());
        self.lengthen(reach.max(self.fresh))
    }

    fn lengthen(&mut self, end: u64) -> io::Result<()> {
        if end > self.len {
            self.file.set_len(end)?;
            self.len = end;
            self.unsynced = true;
        }
        Ok(())
    }
}
