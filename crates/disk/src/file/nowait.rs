//! Whether reads and writes of a file can be asked not to wait (`RWF_NOWAIT`).

use std::sync::atomic::AtomicBool;

use pollux_memory::io::Flow;

/// Which ways the file can tell that it would have to wait. Found out by asking: most file systems can for reads,
/// some for writes.
#[derive(Debug)]
pub struct NoWait {
    reads: AtomicBool,
    writes: AtomicBool,
}

impl Default for NoWait {
    fn default() -> Self {
        Self {
            reads: AtomicBool::new(true),
            writes: AtomicBool::new(true),
        }
    }
}

impl NoWait {
    pub fn of(&self, flow: Flow) -> &AtomicBool {
        match flow {
            Flow::FromFile => &self.reads,
            Flow::ToFile => &self.writes,
        }
    }
}
