//! Reference counts: raised at once, lowered once nothing on the storage refers to what they count.

use std::collections::hash_map::Entry;
use std::io;

use super::bytes::{entries, host_offset, read_or_zero, write_changed};
use super::{BLOCK_AT, ImageState};
use crate::qcow2::refcounts::{self, Block};

/// As many refcount blocks are kept whose decreases are held back.
const MAX_BLOCKS: usize = 64;

impl ImageState {
    /// A refcount block, which `imago` writes as a whole.
    pub(super) fn write_counts(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let order = self.header.refcount_order;
        let block = match self.unsettled.entry(at) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let mut stored = vec![0; bytes.len()];
                read_or_zero(&self.file, &mut stored, at)?;
                vacant.insert(Block::new(stored, order))
            }
        };
        if let Some((high, covered)) = block.want(bytes) {
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

    /// Has the cluster at `at` counted, which a refcount block is about to be: `imago` says so later than it refers to
    /// it.
    pub(super) fn count(&mut self, at: u64) -> io::Result<()> {
        let order = self.header.refcount_order;
        let (block, within) = self.count_of(at)?;
        let Some(block) = block else {
            // It counts itself.
            return Ok(());
        };
        let mut counts = vec![0; usize::try_from(self.header.cluster()).expect("at most 2 MiB")];
        match self.unsettled.get(&block) {
            Some(known) => counts.copy_from_slice(known.wanted()),
            None => read_or_zero(&self.file, &mut counts, block)?,
        }
        if refcounts::get(&counts, order, within) == 0 {
            refcounts::set_one(&mut counts, order, within);
            self.write_counts(block, &counts)?;
        }
        Ok(())
    }

    /// Is the cluster at `at` known to be counted in the file?
    pub(super) fn is_counted(&self, at: u64) -> io::Result<bool> {
        let (block, within) = self.count_of(at)?;
        let known = block.and_then(|block| self.unsettled.get(&block));
        let order = self.header.refcount_order;
        Ok(known.is_some_and(|known| refcounts::get(known.stored(), order, within) > 0))
    }

    /// The block that counts the cluster at `at`, if there is one, and which of its counts that is.
    fn count_of(&self, at: u64) -> io::Result<(Option<u64>, usize)> {
        let (bits, order) = (self.header.cluster_bits, self.header.refcount_order);
        let cluster = usize::try_from(self.header.cluster()).expect("at most 2 MiB");
        let per_block = refcounts::count(cluster, order) as u64;
        let (number, within) = ((at >> bits) / per_block, (at >> bits) % per_block);
        let mut entry = [0; 8];
        read_or_zero(&self.file, &mut entry, self.header.reftable_at + number * 8)?;
        let within = usize::try_from(within).expect("less than a block has");
        Ok((host_offset(&entry, BLOCK_AT), within))
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.unsettled.len() > MAX_BLOCKS
    }

    /// Keeps what is held back within bounds. All that refers to anything is in the file.
    pub(super) fn bound_counts(&mut self) -> io::Result<()> {
        if !self.is_crowded() {
            return Ok(());
        }
        self.pass()?;
        self.settle(true)
    }

    /// The first byte of the file that the refcount block at `at` counts.
    fn block_start(&self, at: u64, len: usize) -> u64 {
        let reftable = u64::from(self.header.reftable_clusters) << self.header.cluster_bits;
        let counts = refcounts::count(len, self.header.refcount_order) as u64;
        let entries = entries(&self.file, self.header.reftable_at, reftable).unwrap_or_default();
        let number = entries.iter().position(|entry| entry & BLOCK_AT == at);
        number.map_or(0, |number| {
            (number as u64 * counts) << self.header.cluster_bits
        })
    }

    /// Lowers what was held back; with `closing`, or to forget it, without a reserve.
    pub(super) fn settle(&mut self, closing: bool) -> io::Result<()> {
        for (at, block) in &mut self.unsettled {
            let settled = block.settled(closing);
            let written = write_changed(&self.file, block.stored(), &settled, *at);
            if written.is_err() {
                // It may have lowered some, which are not counted any more. What cannot be read may all be low.
                let mut there = vec![0; settled.len()];
                let is_known = read_or_zero(&self.file, &mut there, *at).is_ok();
                block.has_stored(if is_known { there } else { settled });
                return written;
            }
            block.has_stored(settled);
        }
        self.unsettled.retain(|_, block| !block.is_settled());
        Ok(())
    }
}
