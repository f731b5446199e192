//! What an image and its channels have in common.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::map::Map;
use super::running::Running;
use super::work::Work;
use crate::{Disk, Events, Geometry};

/// An open image.
pub struct Shared {
    pub legs: Vec<Arc<dyn Disk>>,
    /// How many of the files are written: the first ones.
    pub written: usize,
    /// Is every write durable before it completes?
    pub writethrough: bool,
    pub map: Arc<Map>,
    pub cluster_bits: u32,
    pub as_opened: Geometry,
    pub bytes: AtomicU64,
    pub path: PathBuf,
    pub work: Work,
    /// With `lock=running`.
    pub running: Option<Running>,
    pub events: Events,
    pub totals: Totals,
}

/// How many requests went which way.
#[derive(Default)]
pub struct Totals {
    pub direct: AtomicU64,
    pub looked_up: AtomicU64,
}

impl Totals {
    pub fn add(&self, direct: u64, looked_up: u64) {
        self.direct.fetch_add(direct, Ordering::Relaxed);
        self.looked_up.fetch_add(looked_up, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn geometry(&self) -> Geometry {
        Geometry {
            // With what was done to the map before the disk had this size.
            bytes: self.bytes.load(Ordering::Acquire),
            ..self.as_opened
        }
    }
}
