//! A disk that does nothing, at once: to measure everything else.

use std::io;
use std::sync::Arc;

use crate::{
    Armed, Channel, Completion, Disk, Effort, Events, Geometry, Queued, Request, WaitPoint,
};

/// A disk that keeps nothing and **touches no memory**.
///
/// Writes vanish. A read succeeds and leaves whatever was in the buffer: neither zeroes nor what was
/// written, and a guest sees it as corruption. It is for benchmarks, as SPDK's null device is,
/// and QEMU's `null-co` with `read-zeroes=off`.
#[derive(Debug)]
pub struct Null {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    geometry: Geometry,
    events: Events,
}

struct NullChannel {
    shared: Arc<Shared>,
}

impl Null {
    /// A disk of that geometry. It does all that the geometry promises by doing nothing.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        let events = Events::default();
        Self {
            shared: Arc::new(Shared { geometry, events }),
        }
    }
}

impl Disk for Null {
    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn effort(&self) -> Effort {
        Effort::Nothing
    }

    fn open_channel(&self, _wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(NullChannel { shared }))
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}

// SAFETY: it touches no memory.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for NullChannel {
    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        Queued::Done(self.shared.geometry.check(&request.op))
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _done: &mut dyn FnMut(Completion)) {}

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }
}
