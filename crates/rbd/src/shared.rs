//! What a disk and its channels have together: the image, its size, what is counted and told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pollux_disk::file::Locked;
use pollux_disk::spec::{Rbd, RbdCache};
use pollux_disk::{Access, Admitted, Event, Events, Failure, Geometry, Quota};
use pollux_threads::Kind;

use crate::blocking_thread::{BlockingThread, NoAnswer};
use crate::error::RbdError;
use crate::image::Opened;
use crate::lock;

/// How much longer than the cluster's own timeouts an answer may take.
const GRACE: Duration = Duration::from_secs(5);
/// Closing an image ends what the cluster can still hear, and is not worth more.
const CLOSING: Duration = Duration::from_secs(5);

/// What the disk and its channels have together.
pub struct Shared {
    /// Given to the blocking thread in the end.
    opened: Option<Arc<Opened>>,
    thread: BlockingThread,
    /// But for the size.
    geometry: Geometry,
    pub bytes: AtomicU64,
    pub spec: Rbd,
    pub events: Events,
    pub counts: Counts,
    log_quota: Quota,
    /// Another client has shut this one out.
    lost: OnceLock<()>,
}

/// Requests handed to librbd, those that ended, of these those that failed; and changes that the cluster told of.
#[derive(Debug, Default)]
pub struct Counts {
    pub handed: AtomicU64,
    pub ended: AtomicU64,
    pub failed: AtomicU64,
    pub updates: AtomicU64,
}

/// Has the blocking thread do something for which the cluster may take as long as `spec` says.
pub fn ask<T: Send + 'static>(
    thread: &BlockingThread,
    spec: &Rbd,
    work: impl FnOnce() -> Result<T, RbdError> + Send + 'static,
) -> Result<T, RbdError> {
    thread
        .ask(spec.timeout + GRACE, work)
        .unwrap_or_else(|none| {
            Err(match none {
                NoAnswer::Late => RbdError::Unreachable {
                    after: spec.timeout,
                },
                NoAnswer::Gone => RbdError::Gone,
            })
        })
}

impl Shared {
    /// Of an image that is open, which is locked unless it is only read, or locked later.
    pub fn new(
        opened: Opened,
        thread: BlockingThread,
        spec: &Rbd,
        geometry: Geometry,
    ) -> Result<Arc<Self>, RbdError> {
        let shared = Arc::new(Self {
            opened: Some(Arc::new(opened)),
            thread,
            geometry,
            bytes: AtomicU64::new(0),
            spec: spec.clone(),
            events: Events::default(),
            counts: Counts::default(),
            log_quota: Quota::default(),
            lost: OnceLock::new(),
        });
        if geometry.access == Access::ReadWrite && spec.lock == Locked::Always {
            shared.lock()?;
        }
        shared.bytes.store(shared.size()?, Ordering::Relaxed);
        Ok(shared)
    }

    /// The image, for requests.
    pub fn opened(&self) -> &Opened {
        self.opened.as_deref().expect("it is taken by the drop")
    }

    /// Has the blocking thread do something with the image.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Opened) -> Result<T, RbdError> + Send + 'static,
    ) -> Result<T, RbdError> {
        let opened = Arc::clone(self.opened.as_ref().expect("it is taken by the drop"));
        ask(&self.thread, &self.spec, move || {
            let done = work(&opened);
            drop(opened);
            done
        })
    }

    /// What there is now.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            bytes: self.bytes.load(Ordering::Relaxed),
            ..self.geometry
        }
    }

    /// May a write that has ended lie in a cache of this process?
    pub fn caches_writes(&self) -> bool {
        self.spec.cache == RbdCache::Writeback
    }

    pub fn lock(&self) -> Result<(), RbdError> {
        let patience = self.spec.timeout;
        self.ask(move |image| lock::take(image, patience))
    }

    /// The size of the image, in whole blocks.
    pub fn size(&self) -> Result<u64, RbdError> {
        self.ask(Opened::size).map(|found| self.whole_blocks(found))
    }

    fn whole_blocks(&self, bytes: u64) -> u64 {
        bytes - bytes % u64::from(self.geometry.block)
    }

    /// The blocking thread was told that something about the image has changed.
    pub fn has_changed(&self) {
        self.counts.updates.fetch_add(1, Ordering::Relaxed);
        match self.opened().size() {
            // Where it has got smaller, that was said.
            Ok(found) => _ = self.grows(self.whole_blocks(found)),
            Err(error) => tracing::warn!(
                error = chain(&error),
                "an image has changed, and cannot be looked at"
            ),
        }
    }

    /// Reads how large the image is, for its users.
    pub fn look_again(&self) -> Result<(), RbdError> {
        // Where it has got smaller, that was said.
        let _ = self.grows(self.size()?);
        Ok(())
    }

    /// The image has so many bytes. What guests use never gets smaller: what there is no more fails.
    pub fn grows(&self, found: u64) -> Result<(), u64> {
        let now = self.bytes.fetch_max(found, Ordering::Relaxed);
        if found < now {
            let (image, admitted) = (self.spec.name(), self.log_quota.admits());
            if let Some(Admitted { withheld }) = admitted {
                tracing::error!(
                    image,
                    found,
                    now,
                    withheld,
                    "the image has got smaller, and guests use more of it"
                );
            }
            return Err(now);
        }
        if found > now {
            tracing::info!(
                image = self.spec.name(),
                bytes = found,
                "the image has grown"
            );
            self.events.tell(Event::Changed);
        }
        Ok(())
    }

    /// A request was handed to librbd, or could not be.
    pub fn count_start(&self, started: Result<(), Failure>) -> Result<(), Failure> {
        self.counts.handed.fetch_add(1, Ordering::Relaxed);
        started.inspect_err(|_| self.count_end(started))
    }

    /// It has ended.
    pub fn count_end(&self, result: Result<(), Failure>) {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = result {
            self.count_failure(failure);
        }
    }

    fn count_failure(&self, failure: Failure) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        let image = self.spec.name();
        if failure == Failure::Lost {
            if self.lost.set(()).is_ok() {
                let error = RbdError::Blocklisted { image };
                tracing::error!("{error}");
                self.events.tell(Event::Lost);
            }
            return;
        }
        if let Some(Admitted { withheld }) = self.log_quota.admits() {
            tracing::error!(image, %failure, withheld, "the cluster has failed a request");
        }
    }

    /// Is it locked only while it is used?
    pub fn is_lent(&self) -> bool {
        self.spec.lock == Locked::Running && self.geometry.access == Access::ReadWrite
    }
}

/// What went wrong, and why.
fn chain(error: &RbdError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Closing gives back the lock, for which the cluster has to answer: the blocking thread does it, and is not waited for
/// long.
impl Drop for Shared {
    fn drop(&mut self) {
        let opened = self.opened.take();
        if pollux_threads::kind() == Kind::Cluster {
            return; // the blocking thread has heard of a change until now
        }
        let closed = self.thread.ask(CLOSING, move || drop(opened));
        if closed == Err(NoAnswer::Late) {
            let image = self.spec.name();
            tracing::warn!(
                image,
                "the cluster does not answer: the image is left to be closed by it"
            );
        }
    }
}
