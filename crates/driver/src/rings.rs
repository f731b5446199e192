//! The memory of one queue: its rings, a cache line for each head, and indirect tables.
//!
//! ```text
//!  descriptors   available ring   used ring   lines: one a head           indirect tables: one a head
//!  16 · size     page             page        ┌────────┬───────┬──────┐   16 · entries each
//!                                             │ header │ range │status│   (if negotiated)
//!                                             │ 16     │ 16    │ 1 … 64
//!                                             └────────┴───────┴──────┘
//! ```
//! Header and status share a line: the device reads the one right before it writes the other. No two
//! heads share one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_blk::{RangeSegment, RequestHeader};
use pollux_memory::Span;
use pollux_ring::{Areas, Buffer, DriverEnd, Layout, Suppression, Tables};

use crate::arena::Pool;
use crate::buffer;
use crate::memory::{Addresses, address};

/// Bytes of a line.
const LINE: usize = 64;
/// Where in its line the header is.
pub const HEADER: usize = 0;
/// Where in its line the range of a discard is.
pub const RANGE: usize = 16;
/// Where in its line the status byte is.
pub const STATUS: usize = 32;

const PAGE: usize = 4096;

/// What the parts of a request are called in descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The header, which the device reads first.
    pub header: Buffer,
    /// The range of a discard or write-zeroes.
    pub range: Buffer,
    /// The status, which the device writes last.
    pub status: Buffer,
}

/// The memory of one queue.
#[derive(Debug)]
pub struct Rings {
    /// `None` only while it is dropped.
    memory: Option<buffer::Buffer>,
    /// The device has let go of it.
    stopped: AtomicBool,
    start: u64,
    size: u16,
    areas: Areas,
    suppression: Suppression,
    lines: Span,
    tables: Option<Tables>,
}

impl Rings {
    /// Fresh memory of a queue of `size` entries; with indirect tables of `entries` descriptors.
    ///
    /// # Errors
    ///
    /// When there is no memory, or the process is out of descriptors.
    pub fn new(
        pool: &Pool,
        size: u16, suppression: Suppression, entries: Option<u16>) -> io::Result<Self> {
        let layout = Layout::of(size);
        let count = usize::from(size);
        let parts = [
            layout.descriptor,
            layout.driver,
            layout.device,
            LINE * count,
            16 * count * usize::from(entries.unwrap_or(0)),
        ];
        let bytes = parts.iter().map(|part| part.next_multiple_of(PAGE)).sum();
        let memory = pool.allocate(bytes)?;
        // It may hold what a buffer before it held; a ring begins with zeroes.
        memory.span().zero();
        let mut rest = memory.span();
        let mut next = |part: usize| {
            let (here, after) = rest.split_at(part.next_multiple_of(PAGE));
            rest = after;
            here.split_at(part).0
        };
        let [descriptors, driver, device, lines, tables] = parts.map(&mut next);
        let areas =
            Areas::new(u32::from(size), descriptors, driver, device).map_err(io::Error::other)?;
        let tables = entries.map(|entries| Tables {
            span: tables,
            address: address(tables),
            entries,
        });
        Ok(Self {
            start: address(memory.span()),
            memory: Some(memory),
            stopped: AtomicBool::new(false),
            size,
            areas,
            suppression,
            lines,
            tables,
        })
    }

    /// The device has let go of the memory, which is used again once nobody has this any more.
    pub fn stopped(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Entries of the queue.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Are there indirect tables?
    pub fn indirect(&self) -> bool {
        self.tables.is_some()
    }

    /// Where the device finds them.
    pub fn addresses(&self) -> Addresses {
        let start = self.start;
        let page = |bytes: usize| bytes.next_multiple_of(PAGE) as u64;
        let layout = Layout::of(self.size);
        Addresses {
            descriptor: start,
            driver: start + page(layout.descriptor),
            device: start + page(layout.descriptor) + page(layout.driver),
        }
    }

    /// The end that works on them. There is one.
    pub fn driver_end(&self) -> DriverEnd {
        DriverEnd::new(&self.areas, self.suppression, self.tables)
    }

    #[inline]
    fn line(&self, head: u16) -> Span {
        self.lines
            .slice(LINE * usize::from(head), LINE)
            .expect("there is a line for each head")
    }

    /// Writes the header of the request at `head`, and marks its status as not written.
    #[inline]
    pub fn open(&self, head: u16, header: RequestHeader) -> Frame {
        let line = self.line(head);
        line.store(HEADER, header.to_bytes());
        line.store(STATUS, [NOT_WRITTEN]);
        let start = address(line);
        Frame {
            header: Buffer {
                address: start + HEADER as u64,
                len: 16,
            },
            range: Buffer {
                address: start + RANGE as u64,
                len: 16,
            },
            status: Buffer {
                address: start + STATUS as u64,
                len: 1,
            },
        }
    }

    /// Writes the range of the request at `head`.
    pub fn set_range(&self, head: u16, range: RangeSegment) {
        self.line(head).store(RANGE, range.to_bytes());
    }

    /// The status that the device wrote for `head`.
    #[inline]
    pub fn status(&self, head: u16) -> u8 {
        let [status] = self.line(head).load(STATUS);
        status
    }
}

/// No status of the specification.
const NOT_WRITTEN: u8 = 0xff;

impl Drop for Rings {
    fn drop(&mut self) {
        if let (false, Some(memory)) = (*self.stopped.get_mut(), self.memory.take()) {
            memory.retire();
        }
    }
}
