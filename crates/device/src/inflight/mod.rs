//! The in-flight record: which chains each queue has taken and not yet handed back, in memory that
//! outlives this process.
//!
//! The frontend asks for it once (`GET_INFLIGHT_FD`), keeps the file while its guest runs, and gives it back
//! with each new session (`SET_INFLIGHT_FD`), be it to another process: what that one finds there it does
//! first. Here is the file and its parts; what is written, and in which order, is in [`record`].

mod error;
mod record;

use std::fs::File;
use std::io;
use std::sync::Arc;

use pollux_blk::Cache;
use pollux_memory::{Alarm, Region, Span, Word, memfd};
use pollux_ring::DeviceEnd;
use vhost::vhost_user::message::VhostUserInflight;

use crate::device::Options;
use error::ALIGNMENT;
pub use error::RecordError;
use record::{Store, area_bytes};

/// The record of a running queue.
pub type Record = record::Record<Area>;

/// Behind the parts of all queues there is room for what is said of the device: in its first byte the cache mode, 0
/// where it was not said. Records of earlier versions end without it.
const DEVICE_PART: u64 = ALIGNMENT;
const WRITE_THROUGH: u8 = 1;
const WRITE_BACK: u8 = 2;

/// The in-flight record of all queues of a session.
#[derive(Debug)]
pub struct Inflight {
    region: Arc<Region>,
    queues: u16,
    entries: u16,
}

impl Inflight {
    /// Makes a blank record of the shape that `wanted` has, to be kept by the frontend.
    ///
    /// # Errors
    ///
    /// [`RecordError::Shape`], or what the machine lacks.
    pub fn create(
        wanted: &VhostUserInflight,
        options: &Options,
    ) -> Result<(VhostUserInflight, File), RecordError> {
        let (queues, entries) = shape(wanted, options)?;
        let bytes = bytes(queues, entries) + DEVICE_PART;
        let too_large = |_| RecordError::Unmade(io::ErrorKind::OutOfMemory.into());
        let file = memfd(
            "pollux-inflight",
            usize::try_from(bytes).map_err(too_large)?,
        );
        let made = VhostUserInflight::new(bytes, 0, queues, entries);
        Ok((made, file.map_err(RecordError::Unmade)?))
    }

    /// The record in `file`, which the frontend describes by `given`.
    ///
    /// # Errors
    ///
    /// When the description cannot be this device's, or the file is not what it says.
    pub fn map(
        given: &VhostUserInflight,
        file: File,
        options: &Options,
    ) -> Result<Self, RecordError> {
        let (queues, entries) = shape(given, options)?;
        let (len, needed) = (given.mmap_size, bytes(queues, entries));
        if len < needed {
            return Err(RecordError::Short {
                len,
                needed,
                queues,
                entries,
            });
        }
        if !given.mmap_offset.is_multiple_of(ALIGNMENT) {
            return Err(RecordError::Offset(given.mmap_offset));
        }
        // No more than is used, however much there is said to be; no guest has an address for it.
        let used = len.min(needed + DEVICE_PART);
        let region = Arc::new(Region::map(file, given.mmap_offset, 0, 0, used)?);
        Ok(Self {
            region,
            queues,
            entries,
        })
    }

    /// The same record, which rings `alarm` when its memory is lost. Before it is used.
    ///
    /// # Panics
    ///
    /// When a queue has a part of it.
    #[must_use]
    pub fn with_alarm(self, alarm: &Arc<Alarm>) -> Self {
        let region = Arc::into_inner(self.region).expect("no queue has a part of it yet");
        let region = Arc::new(region.with_alarm(Arc::clone(alarm)));
        Self { region, ..self }
    }

    /// Where the cache mode is kept, if there is room.
    fn cache_byte(&self) -> Option<Span> {
        let at = usize::try_from(bytes(self.queues, self.entries)).ok()?;
        // SAFETY: `self` keeps the region while the two callers below use the byte.
        unsafe { self.region.span() }.slice(at, 1)
    }

    /// The cache mode that was kept last.
    #[must_use]
    pub fn cache(&self) -> Option<Cache> {
        match self.cache_byte()?.load(0) {
            [WRITE_THROUGH] => Some(Cache::Writethrough),
            [WRITE_BACK] => Some(Cache::Writeback),
            _ => None,
        }
    }

    /// Keeps the cache mode for the next process that opens the record.
    pub fn set_cache(&self, cache: Cache) {
        let byte = match cache {
            Cache::Writethrough => WRITE_THROUGH,
            Cache::Writeback => WRITE_BACK,
        };
        if let Some(span) = self.cache_byte() {
            span.release(0, byte);
        }
    }

    /// Has no queue been run on it?
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let written = |queue| record::is_written(&self.area(queue));
        !(0..self.queues).any(written)
    }

    /// The part of `queue`, one of those that it is for.
    fn area(&self, queue: u16) -> Area {
        let bytes = area_bytes(self.entries);
        let at = usize::from(queue) * bytes;
        // SAFETY: the area keeps the region, and gives the span away to no one.
        let span = unsafe { self.region.span() }.slice(at, bytes);
        Area {
            span: span.expect("all queues have their parts"),
            _region: Arc::clone(&self.region),
        }
    }

    /// The part of queue `queue`, whose end `ring` was just made. If an earlier owner has written to it,
    /// `ring` goes on where that one stopped, whatever the frontend says: it counts what was
    /// handed back, the record knows what was taken.
    ///
    /// # Errors
    ///
    /// When it has no room for the queue, or holds what cannot be.
    pub fn record(&self, queue: u16, ring: &mut DeviceEnd) -> Result<Record, RecordError> {
        let (queues, entries, size) = (self.queues, self.entries, ring.size());
        if queue >= queues || size > entries {
            return Err(RecordError::Room {
                queue,
                size,
                queues,
                entries,
            });
        }
        let found = record::Shape {
            queue,
            entries,
            size,
        };
        let (record, next) = Record::open(self.area(queue), found, ring.used())?;
        if let Some(next) = next {
            ring.go_on_with(next);
        }
        Ok(record)
    }
}

/// What `message` says of queues, if this device can have as many and as large ones.
fn shape(message: &VhostUserInflight, options: &Options) -> Result<(u16, u16), RecordError> {
    let (queues, entries) = (message.num_queues, message.queue_size);
    if queues > options.num_queues || entries > options.queue_size {
        return Err(RecordError::Shape {
            queues,
            entries,
            most_queues: options.num_queues,
            most_entries: options.queue_size,
        });
    }
    Ok((queues, entries))
}

fn bytes(queues: u16, entries: u16) -> u64 {
    u64::from(queues) * area_bytes(entries) as u64
}

/// One queue's part of a record, which stays mapped with it.
#[derive(Debug)]
pub struct Area {
    span: Span,
    _region: Arc<Region>,
}

impl Store for Area {
    #[inline]
    fn store<W: Word>(&self, at: usize, word: W) {
        self.span.release(at, word);
    }

    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        self.span.load(at)
    }
}

#[cfg(test)]
mod tests;
