//! Entries of L2 tables for clusters of the reserve, written alone, in the same order: `imago` writes tables as a
//! whole. It still does so later, and what it writes is in the file by then.

use std::io;

use super::bytes::{read_or_zero, write_all};
use super::{ImageState, Kind, Order, TABLE_AT};
use crate::qcow2::header::field64;

/// What refers to it has a table, or a cluster, to itself.
const COPIED: u64 = 1 << 63;

/// A cluster of the disk, and where it lies: `imago` says so in its tables, which may not be in the file yet.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub cluster: u64,
    pub at: u64,
}

impl Order {
    /// Writes the entries of `links`, if the file has all else that they rest on. Else `imago` is to write its tables.
    ///
    /// # Errors
    ///
    /// As for [`Order::write`].
    pub fn link(&self, links: &[Link]) -> io::Result<bool> {
        self.prepare()?;
        let mut state = self.state();
        if !state.pending.is_empty() {
            return Ok(false);
        }
        let mut entries = Vec::with_capacity(links.len());
        for link in links {
            let entry = state.entry(link.cluster)?;
            match entry.filter(|_| link.at & TABLE_AT == link.at) {
                Some(entry) if state.is_counted(link.at)? => entries.push((entry, link.at)),
                _ => return Ok(false),
            }
        }
        if state.unsynced && !entries.is_empty() {
            state.pass()?;
        }
        for (entry, at) in entries {
            write_all(&state.file, &(at | COPIED).to_be_bytes(), entry)?;
        }
        Ok(true)
    }
}

impl ImageState {
    /// Where the file has the L2 entry of a cluster of the disk, in a table that is not shared with a snapshot.
    fn entry(&self, cluster: u64) -> io::Result<Option<u64>> {
        let per_table = self.header.cluster() / 8;
        let (number, within) = (cluster / per_table, cluster % per_table);
        if number >= u64::from(self.header.l1_entries) {
            return Ok(None);
        }
        let mut entry = [0; 8];
        read_or_zero(&self.file, &mut entry, self.header.l1_at + number * 8)?;
        let entry = field64(&entry, 0).filter(|entry| entry & COPIED != 0);
        let table = entry.map(|entry| entry & TABLE_AT);
        let table = table.filter(|table| self.kind(*table) == Kind::L2);
        Ok(table.map(|table| table + within * 8))
    }
}
