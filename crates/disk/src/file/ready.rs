//! What need not be waited for is done there and then.
//!
//! The page cache serves 4 KiB in about a microsecond; to hand that to `io_uring` and to hear of it again
//! costs as much once more, and to a thread a multiple. But whoever asks must never wait, as other disks
//! wait behind it: so the kernel is asked for what it can do without waiting (`RWF_NOWAIT`), and the
//! engine does the rest: cold data, dirty throttling, locks.

use std::sync::atomic::{AtomicBool, Ordering};

use pollux_memory::io::{Flow, try_read_at, try_write_at};
use pollux_memory::uring::Transfer;
use rustix::io::Errno;

use super::backing::{Backing, Residence};
use super::settings::{Cache, Inline};

/// From here on a copy holds the caller up for longer than it takes to hand it over (a wake-up, tens of
/// microseconds), and the engine may do it on another processor.
const MOST: u64 = 128 << 10;

/// Which ways the file can tell that it would have to wait. Found out by asking: most file systems can for reads,
/// some for writes.
#[derive(Debug)]
pub struct Ready {
    reads: AtomicBool,
    writes: AtomicBool,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            reads: AtomicBool::new(true),
            writes: AtomicBool::new(true),
        }
    }
}

impl Ready {
    fn of(&self, flow: Flow) -> &AtomicBool {
        match flow {
            Flow::FromFile => &self.reads,
            Flow::ToFile => &self.writes,
        }
    }
}

/// How much of a transfer was done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// It has ended.
    All(Result<(), Errno>),
    /// So many bytes from its start; the rest has to be waited for.
    Part(u64),
}

impl Backing {
    /// Does as much of `transfer` as need not be waited for.
    ///
    /// A file in memory is copied from and to whatever its system can tell: nothing is waited for there
    /// but memory, as wherever guest memory is touched.
    #[inline]
    pub fn at_once(&self, transfer: &Transfer) -> AtOnce {
        let Transfer {
            flow, spans, at, ..
        } = *transfer;
        let bytes = spans.bytes();
        if self.settings.inline == Inline::Off || bytes > MOST {
            return AtOnce::Part(0);
        }
        if self.residence == Residence::Memory {
            return AtOnce::All(self.copy(flow, at, spans));
        }
        // Past the page cache, everything has to be waited for.
        let ready = self.ready.of(flow);
        if self.settings.cache == Cache::None || !ready.load(Ordering::Relaxed) {
            return AtOnce::Part(0);
        }
        let moved = match flow {
            Flow::FromFile => try_read_at(&self.file, &spans, at),
            Flow::ToFile => try_write_at(&self.file, &spans, at),
        };
        match moved {
            Ok(moved) if moved as u64 == bytes => AtOnce::All(Ok(())),
            Ok(moved) => AtOnce::Part(moved as u64),
            Err(error) => {
                if error == Errno::OPNOTSUPP {
                    ready.store(false, Ordering::Relaxed);
                }
                // Whatever it was, the engine meets it again, and then it is the answer.
                AtOnce::Part(0)
            }
        }
    }
}
