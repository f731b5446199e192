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
//! | an entry of an L2 table | the counts, and what is in the cluster; see *fresh* |
//! | an entry of the L1 table | the L2 table, and its count |
//! | an entry of the refcount table, or a field of the header | all that was written before |
//! | a lower reference count; a write to a freed cluster | the L2 entries without it |
//!
//! A cluster beyond all that were ever used is *fresh*: it lies in a hole of the file, and reads as zeroes whether or
//! not what was written to it got there. Zeroes are not written to it, and an L2 entry need not wait for it, unless
//! something else than zeroes was there before. On a block device no cluster is fresh.

mod bytes;
mod counts;
mod inspect;
mod link;
mod write;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_threads::lock;

use super::barrier::Barrier;
use super::header::{Header, Refusal, field32, field64};
use super::refcounts::Block;
use crate::file::size;
use bytes::{host_offset, joined};
pub use bytes::{read_or_zero, write_all, zero};
pub use link::Link;

/// The bits of an L1 entry that say where its table is.
const TABLE_AT: u64 = 0x00ff_ffff_ffff_fe00;
/// And those of an entry of the refcount table.
const BLOCK_AT: u64 = !511;
/// Where no cluster lies in a hole.
const NEVER_FRESH: u64 = u64::MAX;

/// What is written, and when.
#[derive(Debug)]
pub struct Order(Mutex<ImageState>);

#[derive(Debug)]
struct ImageState {
    file: Arc<fs::File>,
    header: Header,
    /// Where the L2 tables are, in order.
    tables: Vec<u64>,
    /// Where the refcount blocks are, in order.
    blocks: Vec<u64>,
    unsettled: HashMap<u64, Block>,
    /// Writes that wait for [`Order::commit`].
    pending: Vec<(u64, Vec<u8>)>,
    /// Entries of the refcount table that could not be written: `imago` counts in their blocks all the same.
    owed: Vec<(u64, Vec<u8>)>,
    /// Something was written that L2 entries must not come before.
    unsynced: bool,
    stage: Stage,
    /// From here on, nothing was ever used.
    fresh: u64,
    /// As far go the clusters that are in use: fresh ones whose zeroes were not written are so until others may write
    /// them.
    reach: u64,
    /// Does it get longer? A block device does not, and has anything where nothing was written.
    grows: bool,
    opened_len: u64,
    len: u64,
    barrier: Arc<Mutex<Barrier>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing uses it yet.
    Opening,
    Open,
    /// A change of the header has failed half-way: what the file says of the image is not known any more.
    Broken,
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
        file: Arc<fs::File>,
        header: Header,
        barrier: Arc<Mutex<Barrier>>,
        grows: bool,
    ) -> io::Result<Result<Self, Refusal>> {
        let len = size(&file)?;
        let whole = if grows {
            let whole = len.next_multiple_of(header.cluster());
            // A cluster that ends behind the file is one that cannot be read in full.
            file.set_len(whole)?;
            whole
        } else {
            len - len % header.cluster()
        };
        let mut state = ImageState {
            file,
            header,
            tables: Vec::new(),
            blocks: Vec::new(),
            unsettled: HashMap::new(),
            pending: Vec::new(),
            owed: Vec::new(),
            unsynced: true,
            stage: Stage::Opening,
            fresh: if grows { whole } else { NEVER_FRESH },
            reach: 0,
            grows,
            opened_len: whole,
            len: whole,
            barrier,
        };
        Ok(state.inspect()?.map(|()| Self(Mutex::new(state))))
    }

    fn state(&self) -> MutexGuard<'_, ImageState> {
        lock(&self.0)
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
        self.state().zero(at, len)
    }

    /// The image is open: what its header says of it does not change any more.
    pub fn opened(&self) {
        self.state().stage = Stage::Open;
    }

    /// Is there a table of the image at `at`? An image from elsewhere may say that there is data.
    pub fn is_table(&self, at: u64) -> bool {
        self.state().kind(at) != Kind::Other
    }

    /// Is the cluster at `at` in the file, was it ever used, and is it none of its tables? What is written there without
    /// this being told must be in no hole: that would be cut off at the end, or be taken for zeroes.
    pub fn is_data(&self, at: u64) -> bool {
        let state = self.state();
        at.checked_add(state.header.cluster())
            .is_some_and(|end| end <= state.len.min(state.fresh))
            && state.kind(at) == Kind::Other
    }

    /// Does a snapshot keep what the disk and another of its clusters share?
    pub fn has_snapshots(&self) -> bool {
        self.state().header.snapshots > 0
    }

    /// `len` bytes of data are about to be written at `at`, to a cluster that nothing refers to yet.
    pub fn writes(&self, at: u64, len: u64) {
        let mut state = self.state();
        if at < state.fresh {
            state.unsynced = true;
        }
        state.used(at + len);
    }

    /// `len` bytes of data were written at `at`, where the image said that they belong: perhaps behind the end of the
    /// file.
    pub fn holds(&self, at: u64, len: u64) {
        self.state().used(at + len);
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
        state.check()?;
        state.pay()?;
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
        state.write_pending()?;
        state.bound_counts()
    }

    /// Is more held back than there should be?
    pub fn is_crowded(&self) -> bool {
        self.state().is_crowded()
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

impl ImageState {
    /// A field of the header has changed.
    fn renew(&mut self) -> io::Result<()> {
        let mut first = [0; 104];
        read_or_zero(&self.file, &mut first, 0)?;
        self.header.size = field64(&first, 24).unwrap_or(0);
        self.header.l1_entries = field32(&first, 36).unwrap_or(0);
        self.header.l1_at = field64(&first, 40).unwrap_or(0);
        self.header.reftable_at = field64(&first, 48).unwrap_or(0);
        self.header.reftable_clusters = field32(&first, 56).unwrap_or(0);
        self.read_tables()?.map_err(io::Error::other)?;
        // Of those whose entries wait, the file does not know.
        let waiting = self.pending.iter().filter(|(_, bytes)| bytes.len() == 8);
        let waiting: Vec<u64> = waiting
            .filter_map(|(_, entry)| host_offset(entry, TABLE_AT))
            .collect();
        self.tables = waiting
            .into_iter()
            .fold(std::mem::take(&mut self.tables), joined);
        Ok(())
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

    fn pass(&mut self) -> io::Result<()> {
        let mut barrier = lock(&self.barrier);
        barrier.pass()?;
        drop(barrier);
        self.unsynced = false;
        Ok(())
    }

    fn used(&mut self, end: u64) {
        let end = end.checked_next_multiple_of(self.header.cluster());
        self.fresh = self.fresh.max(end.unwrap_or(self.fresh));
    }

    /// All that is in use is in the file.
    fn lengthen_to_reach(&mut self) -> io::Result<()> {
        let reach = self.reach.next_multiple_of(self.header.cluster());
        self.lengthen(reach.max(self.fresh))
    }

    fn lengthen(&mut self, end: u64) -> io::Result<()> {
        if self.grows && end > self.len {
            // What was written farther on must not be cut off.
            let end = end.max(self.fresh);
            self.file.set_len(end)?;
            self.len = end;
            self.unsynced = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
