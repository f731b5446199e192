//! Images in QEMU's format, qcow2.
//!
//! `imago` knows the format. Where a cluster lies that it has looked up is kept (`map`), and requests to it go straight
//! to the file, by the same ways as those of a raw [`File`](crate::File): `channel`. All else is done by one thread
//! that may wait (`work`, `engine`): what was not looked up yet, allocation, copies on write, compressed clusters,
//! zeroes and discards. What of it reaches the storage when is decided in `order`; `docs/notes/0012` says why that is
//! safe.

mod barrier;
mod build;
mod chain;
mod channel;
mod engine;
mod header;
mod map;
mod node;
mod order;
mod refcounts;
mod running;
mod settings;
mod shared;
mod work;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_memory::Region;

use chain::Chain;
use channel::ImageChannel;
use engine::Engine;
pub use header::Refusal;
use map::Map;
use running::Running;
pub use settings::{Backing, Settings};
use shared::{Shared, Totals};
use work::Work;

use crate::file::{self, Cache, Locked};
use crate::{
    Access, Channel, Disk, Effort, Event, Events, Geometry, OpenError, Options, RangeLimits,
    ResizeError, WaitPoint,
};

const MAX_DISCARD: u64 = 1 << 30;
const MAX_WRITE_ZEROES: u64 = 128 << 20;
/// What the page cache writes at once.
const PAGE: u32 = 4096;

/// A qcow2 image.
///
/// - A completed flush means that data *and* tables are on stable storage. What a completed request needs of the tables
///   is in the file before, so that nothing is lost with this process.
/// - It is locked as QEMU locks its images, and so are its backing files; with [`Locked::Running`] from
///   [`Disk::acquire`] to [`Disk::release`] only, but for those that are only read.
/// - Discarded clusters are given back.
pub struct Image {
    shared: Arc<Shared>,
}

impl Image {
    /// Opens the image at `path`, and the files that it names.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; each names the file and what can be done.
    pub fn open(
        path: impl AsRef<Path>,
        settings: impl Into<Settings>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let (path, settings) = (path.as_ref(), settings.into());
        let file::Settings { cache, lock, .. } = settings.file;
        let chain = Chain::open(path, settings, options)?;
        let geometry = geometry(&chain, path, cache, options)?;
        let header = chain.header();
        let map = Arc::new(Map::new(geometry.bytes.div_ceil(header.cluster())));
        let running = lock == Locked::Running && options.access() == Access::ReadWrite;
        let engine = if running {
            None
        } else {
            let built = chain.build()?;
            Some(Engine::new(&chain, built, Arc::clone(&map), geometry.block))
        };
        let shared = Shared {
            legs: chain.disks.clone(),
            written: chain.written(),
            writethrough: cache == Cache::Writethrough,
            map,
            cluster_bits: header.cluster_bits,
            as_opened: geometry,
            bytes: AtomicU64::new(geometry.bytes),
            path: path.to_owned(),
            work: Work::new(engine, cache == Cache::Writethrough, path.to_owned()),
            running: running.then(|| Running::new(chain)),
            events: Events::default(),
            totals: Totals::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

fn geometry(
    chain: &Chain,
    path: &Path,
    cache: Cache,
    options: &Options,
) -> Result<Geometry, OpenError> {
    let blocks = chain.disks.iter().map(|disk| disk.geometry());
    let (block, physical) = blocks.fold((512, 512), |(block, physical), leg| {
        (block.max(leg.block), physical.max(leg.physical_block))
    });
    let block = options.block(block)?;
    let cluster = chain.header().cluster();
    // Tables are written through the page cache: data in the same page that goes past it would be overwritten with what
    // was there before.
    let least = match (cache, options.access()) {
        (Cache::None, Access::ReadWrite) => PAGE.max(block),
        _ => block,
    };
    if cluster < u64::from(least) {
        let path = path.to_owned();
        let why = Refusal::SmallClusters {
            cluster,
            block: least,
        };
        return Err(OpenError::Image { path, why });
    }
    let range = |max_bytes, alignment| RangeLimits {
        max_bytes,
        alignment,
    };
    let writes = options.access() == Access::ReadWrite;
    file::warn_of_rest(path, chain.header().size, block);
    let alignment = u32::try_from(cluster).expect("at most 2 MiB");
    Ok(Geometry {
        bytes: file::whole_blocks(path, chain.header().size, block)?,
        access: options.access(),
        block,
        physical_block: physical.max(block),
        min_io: 0,
        optimal_io: 0,
        discard: writes.then(|| range(MAX_DISCARD, alignment)),
        write_zeroes: writes.then(|| range(MAX_WRITE_ZEROES, alignment)),
    })
}

impl Disk for Image {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    /// That of the file that costs most.
    fn effort(&self) -> Effort {
        let legs = self.shared.legs.iter().map(|leg| leg.effort());
        legs.fold(Effort::HandOver, Effort::max)
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(ImageChannel::new(&self.shared, wait)?))
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        let mut legs = self.shared.legs.iter();
        legs.try_for_each(|leg| leg.map(region))
    }

    fn unmap(&self, region: &Arc<Region>) {
        self.shared.legs.iter().for_each(|leg| leg.unmap(region));
    }

    fn acquire(&self) -> io::Result<()> {
        let shared = &self.shared;
        let Some(running) = &shared.running else {
            return Ok(());
        };
        let block = shared.as_opened.block;
        let before = shared.bytes.load(Ordering::Relaxed);
        let is = {
            let shared = Arc::clone(shared);
            move |now: u64| {
                shared
                    .bytes
                    .store(now - now % u64::from(block), Ordering::Relaxed);
            }
        };
        running.acquire(&shared.work, &shared.map, block, is)?;
        if shared.bytes.load(Ordering::Relaxed) != before {
            shared.events.tell(Event::Changed);
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        let Shared {
            running, work, map, ..
        } = &*self.shared;
        running
            .as_ref()
            .map_or(Ok(()), |running| running.release(work, map))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        let shared = &self.shared;
        let path = || shared.path.clone();
        let asked = bytes.ok_or_else(|| ResizeError::NoSize { path: path() })?;
        let Geometry {
            bytes: now,
            block,
            access,
            ..
        } = shared.geometry();
        if asked < now {
            return Err(ResizeError::Smaller { now, asked });
        }
        if !asked.is_multiple_of(block.into()) {
            return Err(ResizeError::PartialBlock { asked, block });
        }
        if access == Access::ReadOnly {
            return Err(ResizeError::ReadOnly { path: path() });
        }
        let grown = shared.work.grow(asked).map_err(|source| ResizeError::Io {
            doing: "enlarge",
            path: path(),
            source,
        })?;
        grown.ok_or_else(|| ResizeError::NotHeld { path: path() })?;
        // Another may have asked for more at the same time. A channel that sees this size sees what the map says by then.
        if shared.bytes.fetch_max(asked, Ordering::Release) < asked {
            shared.events.tell(Event::Changed);
        }
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Totals { direct, looked_up } = &self.shared.totals;
        let own = [("direct", direct), ("looked_up", looked_up)];
        let own = own.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        let image = self.shared.legs[0].counters();
        own.into_iter().chain(image).collect()
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("path", &self.shared.path)
            .field("geometry", &self.shared.geometry())
            .finish_non_exhaustive()
    }
}
