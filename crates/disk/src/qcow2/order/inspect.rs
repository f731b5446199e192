//! Where the tables of an image are, and whether that can be.

use std::io;

use super::bytes::{entries, host_offsets, read_or_zero};
use super::{BLOCK_AT, ImageState, TABLE_AT};
use crate::qcow2::header::Refusal;
use crate::qcow2::refcounts;

impl ImageState {
    /// Finds out where the tables are, and whether that can be.
    pub(super) fn inspect(&mut self) -> io::Result<Result<(), Refusal>> {
        match self.read_tables()? {
            Ok(()) => self.check_counts(),
            refused => Ok(refused),
        }
    }

    pub(super) fn read_tables(&mut self) -> io::Result<Result<(), Refusal>> {
        let header = &self.header;
        let l1 = entries(&self.file, header.l1_at, u64::from(header.l1_entries) * 8)?;
        let reftable = u64::from(header.reftable_clusters) << header.cluster_bits;
        let reftable = entries(&self.file, header.reftable_at, reftable)?;
        self.tables = host_offsets(l1, TABLE_AT);
        self.blocks = host_offsets(reftable, BLOCK_AT);
        // What is changed for one would change the other: a cluster that is given away twice.
        for (what, offsets) in [("L2 table", &self.tables), ("refcount block", &self.blocks)] {
            let mut pairs = offsets.iter().zip(&offsets[1.min(offsets.len())..]);
            if let Some((at, _)) = pairs.find(|(one, other)| one == other) {
                let what = format!("the {what} at {at:#x} is used twice");
                return Ok(Err(Refusal::Damaged(what)));
            }
        }
        let unaligned = |at: &&u64| **at & (header.cluster() - 1) != 0;
        if let Some(at) = self.tables.iter().chain(&self.blocks).find(unaligned) {
            let what = format!("a table lies at {at:#x}, which is inside a cluster");
            return Ok(Err(Refusal::Damaged(what)));
        }
        // What a table is must not be another as well: a write to one would change the other.
        let twice = |at: &&u64| self.fixed(**at).is_some() || self.blocks.binary_search(at).is_ok();
        if let Some(at) = self.tables.iter().find(twice) {
            let what = format!("an L2 table lies at {at:#x}, where another table is");
            return Ok(Err(Refusal::Damaged(what)));
        }
        if let Some(at) = self.blocks.iter().find(|at| self.fixed(**at).is_some()) {
            let what = format!("a refcount block lies at {at:#x}, where another table is");
            return Ok(Err(Refusal::Damaged(what)));
        }
        Ok(Ok(()))
    }

    /// A table that is not counted would be given to data: the next allocation overwrites it.
    fn check_counts(&self) -> io::Result<Result<(), Refusal>> {
        let header = &self.header;
        let reftable = u64::from(header.reftable_clusters) << header.cluster_bits;
        let blocks = entries(&self.file, header.reftable_at, reftable)?;
        let mut counts = vec![0; usize::try_from(header.cluster()).expect("at most 2 MiB")];
        let per_block = refcounts::count(counts.len(), header.refcount_order) as u64;
        let l1 = u64::from(header.l1_entries) * 8;
        let fixed = [(0, 1), (header.l1_at, l1), (header.reftable_at, reftable)];
        let fixed = fixed.into_iter().flat_map(|(at, len)| {
            let clusters = len.div_ceil(header.cluster());
            (0..clusters).map(move |number| at + (number << header.cluster_bits))
        });
        let mut all: Vec<u64> = fixed.chain(self.tables.iter().copied()).collect();
        all.extend_from_slice(&self.blocks);
        all.sort_unstable();
        let mut loaded = None;
        for at in all {
            let cluster = at >> header.cluster_bits;
            let (number, within) = (cluster / per_block, cluster % per_block);
            let block = usize::try_from(number)
                .ok()
                .and_then(|number| blocks.get(number));
            let block = block.map_or(0, |entry| entry & BLOCK_AT);
            if block != 0 && loaded != Some(block) {
                read_or_zero(&self.file, &mut counts, block)?;
                loaded = Some(block);
            }
            let within = usize::try_from(within).expect("less than a block has");
            if block == 0 || refcounts::get(&counts, header.refcount_order, within) == 0 {
                let what = format!("the table at {at:#x} is not counted");
                return Ok(Err(Refusal::Damaged(what)));
            }
        }
        Ok(Ok(()))
    }
}
