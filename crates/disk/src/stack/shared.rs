//! What a stacked disk is made of, as its channels see it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_threads::lock;

use super::build::{Plan, Whole};
use super::counts::Tally;
use crate::{Admitted, Disk, Events, Quota};

/// Which legs an owner of a stacked disk's channel polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollScope {
    /// Those that hold sub-requests of its own.
    #[default]
    OwnInFlight,
    /// All of them: to measure against.
    EveryQueue,
}

/// What a stack and its channels have in common.
pub struct Shared {
    pub legs: Vec<Arc<dyn Disk>>,
    pub scope: PollScope,
    pub plan: Plan,
    whole: Mutex<Arc<Whole>>,
    /// Counts the changes of `whole`; written with its lock held.
    generation: AtomicU64,
    pub events: Events,
    pub tally: Tally,
    /// For lines about legs that change, as often as their servers like.
    log_quota: Quota,
}

impl Shared {
    pub fn new(legs: Vec<Arc<dyn Disk>>, scope: PollScope, plan: Plan, whole: Whole) -> Self {
        Self {
            legs,
            scope,
            plan,
            whole: Mutex::new(Arc::new(whole)),
            generation: AtomicU64::new(0),
            events: Events::default(),
            tally: Tally::default(),
            log_quota: Quota::default(),
        }
    }

    /// The whole as it is now.
    pub fn whole(&self) -> Arc<Whole> {
        Arc::clone(&lock(&self.whole))
    }

    /// Which version of it that is.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A leg has changed. What it has grown by is added where that moves no byte; what it has lost stays a part
    /// of the whole, and requests there fail.
    pub fn renew(&self) {
        let mut whole = lock(&self.whole);
        let geometries: Vec<_> = self.legs.iter().map(|leg| leg.geometry()).collect();
        if let Some(moves) = self.plan.moves(&geometries)
            && let Some(Admitted { withheld }) = self.log_quota.admits()
        {
            tracing::warn!(withheld, "{moves}");
        }
        match self.plan.whole(&geometries) {
            Ok(next) if next.geometry.bytes >= whole.geometry.bytes => *whole = Arc::new(next),
            Ok(_) => {
                if let Some(Admitted { withheld }) = self.log_quota.admits() {
                    tracing::warn!(
                        withheld,
                        "a leg of a stacked disk has shrunk: requests beyond its end fail"
                    );
                }
            }
            Err(error) => {
                if let Some(Admitted { withheld }) = self.log_quota.admits() {
                    tracing::warn!(
                        %error,
                        withheld,
                        "a leg of a stacked disk has changed, and does not fit any more"
                    );
                }
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }
}
