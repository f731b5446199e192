//! Rings of queues that are over, or go on elsewhere, and that a server may still write to.
//!
//! Which memory is used again, and when:
//! - Rings that no server was told of, or that one has let go of (`GET_VRING_BASE`): at once.
//! - Those that a server knew whose session is over: a server that is restarted has lost them, but one that was slow to
//!   let go may still end requests in them. They are kept until the server that followed has come and gone, too.
//! - Those that were laid out for a server that was gone before it was told everything (*spare* ones): only as rings of
//!   a later server, but not of the very next, for which they are laid out anew.
//! - Those that a server knew when the device was lost: never.
//!
//! So restarts, and queues that come and go while the server is away, take a bounded amount of memory.

use std::sync::{Arc, Mutex};

use pollux_threads::lock;

use crate::device::rings::Rings;

/// What the servers of a device may still write to.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Which server it is by now.
    epoch: u64,
    /// With the epoch of the server that knows them.
    rings: Vec<(u64, Arc<Rings>)>,
    /// Which attempt to go on at another server this is.
    attempt: u64,
    /// With the attempt in which a server was told of them.
    spares: Vec<(u64, Arc<Rings>)>,
}

impl Kept {
    /// No queue uses `rings` from now on, which the server of `epoch` was the last to be told of.
    pub fn keep(&self, epoch: u64, rings: Arc<Rings>) {
        if !rings.are_known() {
            return;
        }
        let mut inner = lock(&self.0);
        if inner.is_recent(epoch) {
            inner.rings.push((epoch, rings));
        } else {
            rings.outlived();
        }
    }

    /// The server is that of `epoch` from now on.
    pub fn advance(&self, epoch: u64) {
        let mut inner = lock(&self.0);
        inner.epoch = epoch;
        let rings = std::mem::take(&mut inner.rings);
        let (recent, outlived): (Vec<_>, Vec<_>) = rings
            .into_iter()
            .partition(|(known, _)| inner.is_recent(*known));
        inner.rings = recent;
        for (_, rings) in outlived {
            rings.outlived();
        }
    }

    /// Another server is tried: which attempt is it?
    pub fn begin_attempt(&self) -> u64 {
        let mut inner = lock(&self.0);
        inner.attempt += 1;
        inner.attempt
    }

    /// Rings of which a server was told in that `attempt`, and in which no owner has shown a request.
    pub fn put_spare(&self, attempt: u64, rings: Arc<Rings>) {
        lock(&self.0).spares.push((attempt, rings));
    }

    /// Some of those, of which the server that was tried last knows nothing.
    pub fn take_spare(&self) -> Option<Arc<Rings>> {
        let mut inner = lock(&self.0);
        let attempt = inner.attempt;
        let mut told = inner.spares.iter();
        let at = told.position(|(told, _)| told + 1 < attempt)?;
        Some(inner.spares.swap_remove(at).1)
    }
}

impl Inner {
    /// Is the server of `epoch` the current one, or the last one before?
    fn is_recent(&self, epoch: u64) -> bool {
        self.epoch <= epoch.saturating_add(1)
    }
}

#[cfg(test)]
mod tests;
