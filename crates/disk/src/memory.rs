//! A disk in memory, of which only what is written takes up room.

use std::io;
use std::sync::Arc;

use pollux_memory::{Spans, Sparse};

use crate::{
    Armed, Channel, Completion, Disk, Events, Failure, Geometry, Op, Queued, RangeLimits, Request,
    Unmap, WaitPoint,
};

/// Giving pages back takes about 0.1 ms a MiB, and zeroing them as long; meanwhile the thread that
/// asks serves no one else. Hence limits below what the kernel could do at once.
const MAX_DISCARD: u64 = 8 << 20;
const MAX_WRITE_ZEROES: u64 = 4 << 20;

/// A sparse disk in memory. What was never written, or was discarded, reads as zeroes and takes up no
/// room; nothing outlives the disk.
///
/// Any number of channels use it at once, without a lock: requests that overlap while they are in
/// flight leave a mixture of their bytes, as on any disk. Every request is done when it is queued.
///
/// Its size is a promise, not a reservation: see [`Sparse`] for what happens when the machine runs out
/// of memory.
#[derive(Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    geometry: Geometry,
    bytes: Sparse,
    events: Events,
}

struct MemoryChannel {
    shared: Arc<Shared>,
}

impl Memory {
    /// A disk of that geometry, all zeroes. It can discard and zero, whatever `geometry` says of that.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the address space, a resource limit or the kernel's policy cannot hold it.
    pub fn new(geometry: Geometry) -> io::Result<Self> {
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
        let limits = |max_bytes| {
            Some(RangeLimits {
                max_bytes,
                alignment: page.max(geometry.block),
            })
        };
        let shared = Shared {
            geometry: Geometry {
                discard: limits(MAX_DISCARD),
                write_zeroes: limits(MAX_WRITE_ZEROES),
                ..geometry
            },
            bytes: Sparse::new(geometry.bytes)?,
            events: Events::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// How many bytes of memory its contents take up now.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell (`/proc` is not mounted).
    pub fn allocated(&self) -> io::Result<u64> {
        self.shared.bytes.allocated()
    }
}

impl Disk for Memory {
    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn open_channel(&self, _wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemoryChannel { shared }))
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}

impl Shared {
    #[inline]
    fn run(&self, op: &Op) -> Result<(), Failure> {
        self.geometry.check(op)?;
        match *op {
            Op::Read { at, into } => self.read(at, into),
            Op::Write { at, from, .. } => self.write(at, from),
            Op::Flush => {}
            Op::Discard { at, len }
            | Op::WriteZeroes {
                at,
                len,
                unmap: Unmap::Allowed,
                ..
            } => self.bytes.discard(at, in_memory(len)),
            Op::WriteZeroes { at, len, .. } => self.bytes.zero(at, in_memory(len)),
        }
        Ok(())
    }

    #[inline]
    fn read(&self, mut at: u64, into: Spans) {
        for &span in into.iter() {
            self.bytes.read(at, span);
            at += span.len() as u64;
        }
    }

    #[inline]
    fn write(&self, mut at: u64, from: Spans) {
        for &span in from.iter() {
            self.bytes.write(at, span);
            at += span.len() as u64;
        }
    }
}

fn in_memory(len: u64) -> usize {
    usize::try_from(len).expect("what is inside a mapping has a usize length")
}

// SAFETY: every request is done when it is queued, by copies that are over by then.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for MemoryChannel {
    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        Queued::Done(self.shared.run(&request.op))
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _done: &mut dyn FnMut(Completion)) {}

    fn arm(&mut self) -> Armed {
        Armed::Idle
    }
}
