//! A request of the model.

use std::sync::Arc;
use std::task::Waker;

use pollux_disk::Failure;
use pollux_driver::CompletionMode;
use pollux_driver::model::{CompletionState, Owner, Wakeups};

use super::events::Point;

/// A request, as far as a shared queue knows it.
#[derive(Clone, Debug)]
pub struct Request(pub Arc<CompletionState<()>>, pub(super) Option<Arc<Point>>);

impl Request {
    pub fn new(completion: CompletionMode) -> Self {
        Self(Arc::new(CompletionState::new(completion, ())), None)
    }
}

impl Owner for Request {
    fn completion(&self) -> CompletionMode {
        self.0.completion()
    }

    fn end(self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        self.0.end(result, wakes);
        if let Some(channel) = self.1 {
            wakes.wake(Waker::from(channel));
        }
    }
}
