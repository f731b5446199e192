//! The disk that an image is.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use pollux_disk::spec::Rbd;
use pollux_disk::{
    Access, Channel, Disk, Effort, Event, Events, Geometry, OpenError, Options, RangeLimits,
    ResizeError, WaitPoint,
};

use crate::blocking_thread::BlockingThread;
use crate::channel::RbdChannel;
use crate::error::RbdError;
use crate::image::{Opened, Watch};
use crate::library;
use crate::shared::{Counts, Shared, ask};

/// What one request may discard or zero: some dozen of the objects, usually of 4 MiB, that librbd sends a request each
/// for.
const MAX_DISCARD: u64 = 256 << 20;
const MAX_WRITE_ZEROES: u64 = 64 << 20;
/// What the cluster stores without reading first, and what Linux's own client gives as the best size.
const PHYSICAL_BLOCK: u32 = 4096;
const OPTIMAL: u32 = 64 << 10;

/// An open image. See [the crate](crate).
pub struct Image {
    shared: Arc<Shared>,
}

impl Image {
    /// Opens the image that `spec` names, and locks it unless it is only read, or locked later.
    ///
    /// # Errors
    ///
    /// [`OpenError::Rbd`], [`OpenError::BlockSize`].
    pub fn open(spec: &Rbd, options: &Options) -> Result<Self, OpenError> {
        let blocks = options.geometry(0)?;
        let read_only = options.read_only || spec.snapshot.is_some();
        let shared = open(spec, blocks, read_only).map_err(|error| OpenError::Rbd {
            image: spec.name(),
            source: Box::new(error),
        })?;
        Ok(Self { shared })
    }
}

fn open(spec: &Rbd, blocks: Geometry, read_only: bool) -> Result<Arc<Shared>, RbdError> {
    // Here, where files may still be opened.
    library::load()?;
    let thread = BlockingThread::start().map_err(|source| RbdError::Machine {
        doing: "start a thread",
        source,
    })?;
    let listener = Arc::new(OnceLock::<Weak<Shared>>::new());
    let watch = Watch {
        tasks: thread.tasks(),
        task: {
            let listener = Arc::clone(&listener);
            Arc::new(move || {
                if let Some(shared) = listener.get().and_then(Weak::upgrade) {
                    shared.has_changed();
                }
            })
        },
    };
    let wanted = spec.clone();
    let find = move || {
        let mut image = Opened::open(&wanted, read_only)?;
        if !read_only && !image.has_lock()? {
            let image = wanted.name();
            return Err(RbdError::NoLock { image });
        }
        image.watch(watch)?;
        Ok(image)
    };
    let opened = ask(&thread, spec, find)?;
    let geometry = geometry(blocks, &opened, read_only);
    let shared = Shared::new(opened, thread, spec, geometry)?;
    // From here on it is told of changes; one that came before is part of that size, or is told late.
    let _ = listener.set(Arc::downgrade(&shared));
    shared.look_again()?;
    Ok(shared)
}

/// What the disk says of itself, but for its size.
fn geometry(blocks: Geometry, opened: &Opened, read_only: bool) -> Geometry {
    let block = blocks.block;
    let granularity = opened.option(c"rbd_discard_granularity_bytes");
    let granularity = granularity.and_then(|bytes| u32::try_from(bytes).ok());
    let zeroes = opened.ceph().rbd.rbd_aio_write_zeroes.is_some();
    let range = |max_bytes, alignment: u32| RangeLimits {
        max_bytes,
        alignment: alignment.next_multiple_of(block).max(block),
    };
    Geometry {
        access: if read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        physical_block: block.max(PHYSICAL_BLOCK),
        optimal_io: block.max(OPTIMAL),
        discard: Some(range(MAX_DISCARD, granularity.unwrap_or(block))),
        write_zeroes: zeroes.then(|| range(MAX_WRITE_ZEROES, block)),
        ..blocks
    }
}

fn of_io(error: RbdError) -> io::Error {
    let kind = match error {
        RbdError::InUse { .. } => io::ErrorKind::ResourceBusy,
        RbdError::Unreachable { .. } | RbdError::LateResize { .. } => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Disk for Image {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(RbdChannel::new(shared, wait)))
    }

    /// librbd copies what is written, lest the guest changes it while its checksum is made.
    fn effort(&self) -> Effort {
        Effort::Copy
    }

    fn acquire(&self) -> io::Result<()> {
        if self.shared.is_lent() {
            self.shared.lock().map_err(of_io)?;
            // Others had it: it has the size that they gave it.
            let found = self.shared.size().map_err(of_io)?;
            if self.shared.bytes.swap(found, Ordering::Relaxed) != found {
                self.shared.events.tell(Event::Changed);
            }
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        if self.shared.is_lent() {
            self.shared.ask(Opened::unlock).map_err(of_io)?;
        }
        Ok(())
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        let (shared, path) = (&self.shared, || self.shared.spec.name().into());
        let failed = |doing| {
            let path = path();
            move |error| ResizeError::Io {
                doing,
                path,
                source: of_io(error),
            }
        };
        if let Some(asked) = bytes {
            let Geometry {
                bytes: now, block, ..
            } = shared.geometry();
            if asked < now {
                return Err(ResizeError::Smaller { now, asked });
            }
            if !asked.is_multiple_of(block.into()) {
                return Err(ResizeError::PartialBlock { asked, block });
            }
            if shared.geometry().access == Access::ReadOnly {
                return Err(ResizeError::ReadOnly { path: path() });
            }
            let enlarge = move |image: &Opened| {
                if !image.is_locked()? {
                    return Ok(false);
                }
                // Others may have made it larger than that: nothing of it is cut off.
                if asked > image.size()? {
                    image.resize(asked)?;
                }
                Ok(true)
            };
            // What was asked is done all the same, once the cluster answers.
            let enlarged = shared.ask(enlarge).map_err(|error| match error {
                RbdError::Unreachable { after } => RbdError::LateResize { after },
                error => error,
            });
            if !enlarged.map_err(failed("enlarge"))? {
                return Err(ResizeError::NotHeld { path: path() });
            }
        }
        let found = shared.size().map_err(failed("find the size of"))?;
        shared.grows(found).map_err(|now| ResizeError::Shrunk {
            path: path(),
            now,
            found,
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counts {
            handed,
            ended,
            failed,
            updates,
        } = &self.shared.counts;
        // The first less the second is what the cluster has not answered yet.
        [
            ("librbd", handed),
            ("ended", ended),
            ("failed", failed),
            ("updates", updates),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
        .into()
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}
