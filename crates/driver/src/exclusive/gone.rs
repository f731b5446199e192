//! What the owner of a channel has of a device that is gone.

use pollux_disk::{Armed, Channel, Completion, Failure, Queued, Request};

/// A channel that ends each request at once, as lost.
#[derive(Debug)]
pub struct Gone;

// SAFETY: it uses no memory of a request.
unsafe impl Channel for Gone {
    fn queue(&mut self, _: Request) -> Queued {
        Queued::Done(Err(Failure::Lost))
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut dyn FnMut(Completion)) {}

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }
}
