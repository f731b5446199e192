//! A file that remembers each write and each sync, in their order.
//!
//! A file system that loses its power keeps all that was synced and *any* of what was written since. What reaches a
//! disk first on a machine of today is chance; from the record every choice can be made.

use std::fs;
use std::path::Path;

use fastrand::Rng;

use super::fuse::{Change, Changes, Mounted};
use super::skip;

/// What is written as one: of more than that, a part may survive.
const SECTOR: usize = 512;

/// A file at a path, as long as this lives.
pub struct Recorder {
    before: Vec<u8>,
    changes: Changes,
    #[expect(dead_code, reason = "it is there until this goes")]
    mounted: Mounted,
}

impl Recorder {
    /// Puts the file at `path` behind a record. `None`, with a word, where that cannot be.
    pub fn over(path: &Path) -> Option<Self> {
        let before = fs::read(path).unwrap();
        let changes = Changes::default();
        let mounted = Mounted::over(path, &changes);
        let mounted = mounted.inspect_err(|error| skip(&format!("no record of writes: {error}")));
        Some(Self {
            before,
            changes,
            mounted: mounted.ok()?,
        })
    }

    /// How many changes and syncs there were.
    pub fn count(&self) -> usize {
        self.changes.lock().unwrap().len()
    }

    /// Is change number `number` there, and a sync?
    pub fn has_sync(&self, number: usize) -> bool {
        self.changes
            .lock()
            .unwrap()
            .get(number)
            .is_some_and(is_sync)
    }

    /// What a disk holds if the power fails while change number `alone` is under way, and of all that was not synced by
    /// then it alone survives.
    pub fn with_one_alone(&self, alone: usize) -> Vec<u8> {
        let mut file = self.before.clone();
        let changes = self.changes.lock().unwrap();
        let synced = synced(&changes[..alone]);
        for change in changes[..synced].iter().chain([&changes[alone]]) {
            change.apply(0..change.len(), &mut file);
        }
        file
    }

    /// What a disk holds on which the first `count` were under way when the power failed: all before the last sync, and
    /// any of the rest.
    pub fn after_power_cut(&self, count: usize, random: &mut Rng) -> Vec<u8> {
        let mut file = self.before.clone();
        let changes = self.changes.lock().unwrap();
        let synced = synced(&changes[..count]);
        // All, none, or some more than others.
        let survive = [0, 10, 50, 90, 100][random.usize(..5)];
        for (number, change) in changes[..count].iter().enumerate() {
            for from in (0..change.len()).step_by(SECTOR) {
                if number < synced || random.u8(..100) < survive {
                    let to = change.len().min(from + SECTOR);
                    change.apply(from..to, &mut file);
                }
            }
        }
        file
    }
}

fn is_sync(change: &Change) -> bool {
    matches!(change, Change::Sync)
}

/// How many of `changes` are durable.
fn synced(changes: &[Change]) -> usize {
    changes.iter().rposition(is_sync).map_or(0, |last| last + 1)
}
