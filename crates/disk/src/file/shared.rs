//! What a file and its channels have in common.

use std::io;
use std::sync::{Arc, Once};

use pollux_memory::uring::Ring;

use super::backing::Backing;
use super::counts::Totals;
use super::job::Job;
use super::pool::Pool;
use super::registered::Registered;
use super::settings::{Buffers, Cache, Engine};
use super::transfers::Transfers;
use crate::{Events, OpenError};

/// As many operations of one disk run on threads at once.
pub const MAX_THREADS: usize = 16;

#[derive(Debug)]
pub struct Shared {
    pub backing: Arc<Backing>,
    /// What moves the data that has to be waited for, on this machine.
    mover: Mover,
    /// With [`Buffers::Registered`].
    pub registered: Option<Arc<Registered>>,
    pub pool: Pool<Job>,
    pub totals: Totals,
    pub events: Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mover {
    IoUring,
    Threads,
}

fn mover(backing: &Backing) -> Result<Mover, OpenError> {
    if backing.settings.engine == Engine::Threads {
        return Ok(Mover::Threads);
    }
    match Ring::probe(&backing.file) {
        Ok(()) => Ok(Mover::IoUring),
        Err(error) if backing.settings.engine == Engine::Auto => {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::warn!(%error, "there is no io_uring here: threads do its work, and files are slower");
            });
            Ok(Mover::Threads)
        }
        Err(source) => Err(OpenError::NoIoUring {
            path: backing.path.clone(),
            source,
        }),
    }
}

impl Shared {
    pub fn new(backing: Backing) -> Result<Self, OpenError> {
        let backing = Arc::new(backing);
        let mover = mover(&backing)?;
        let working = Arc::clone(&backing);
        let register = mover == Mover::IoUring && backing.settings.buffers == Buffers::Registered;
        Ok(Self {
            mover,
            registered: register.then(Arc::default),
            pool: Pool::new(MAX_THREADS, move |job: Job| job.run(&working)),
            backing,
            totals: Totals::default(),
            events: Events::default(),
        })
    }

    pub fn new_transfers(&self) -> io::Result<Option<Transfers>> {
        match self.mover {
            Mover::IoUring => {
                let backing = &self.backing;
                let direct = backing.settings.cache == Cache::None;
                Transfers::new(&backing.file, self.registered.as_ref(), direct).map(Some)
            }
            Mover::Threads => Ok(None),
        }
    }
}
