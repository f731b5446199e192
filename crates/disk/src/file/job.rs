//! What is done by a thread that may block.

use super::backing::Backing;
use super::sync::{Joined, Settle, Waiter};
use crate::inbox::Address;
use crate::{Completion, Failure, Request};

/// What a thread of the pool does.
#[derive(Debug)]
pub enum Job {
    /// A request, whose end is delivered.
    Run(Request, Address),
    /// The syncs that requests wait for.
    Sync,
}

impl Job {
    /// Does it, on a thread that may block.
    pub fn run(self, backing: &Backing) {
        match self {
            Self::Sync => backing.lead_syncs(),
            Self::Run(Request { ticket, op }, to) => {
                let mut result = backing.run(&op);
                if result.is_ok() && backing.settles(&op) == Settle::Synced {
                    let to = to.clone();
                    match backing.settle(Waiter { ticket, to }) {
                        Joined::Leader | Joined::Follower => return,
                        Joined::Failed(error) => result = Err(Failure::Io(error)),
                    }
                }
                to.deliver(Completion { ticket, result });
            }
        }
    }
}
