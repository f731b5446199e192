//! The memory of one queue: its rings, two cache lines for each head, and indirect tables.
//!
//! ```text
//!  descriptors   available ring   used ring   a line and a status for each head
//!  16 · size     page             page        ┌──────────┬──────────┬──────────┬────────┐  ┌──────┬──
//!                                             │ → header │ → data   │ → status │ header │  │status│
//!  larger indirect tables: one a head         │ 16       │ 16       │ 16       │ 16     │  │ 1    │
//!  16 · entries each                          └──────────┴──────────┴──────────┴────────┘  └──────┴──
//! ```
//! A request of one buffer is an indirect table of three descriptors, two of which never change, and the
//! header behind them: one line, which only the driver writes, so the device stalls for no other before
//! it begins. The status is in a line of its own, which the device writes. No two heads share one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use pollux_blk::{RangeSegment, RequestHeader};
use pollux_memory::Span;
use pollux_ring::{
    Areas, Buffer, DescriptorFlags, DriverEnd, Layout, RingIndex, Suppression, Tables,
};
use pollux_threads::lock;

use crate::memory::buffer;
use crate::memory::data::Direction;
use crate::memory::memfd::{Addresses, address};
use crate::memory::pool::Pool;

/// Bytes of a line.
const LINE: usize = 64;
/// Where in a head's line the descriptors of its data and status are, and its header.
const DATA: usize = 16;
const STATUS: usize = 32;
const HEADER: usize = 48;
/// Where in a head's second line the range of a discard is; the status is at its start.
const RANGE: usize = 16;

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
    /// Where in the available ring the device was when it let go of the memory.
    stopped: OnceLock<RingIndex>,
    /// Was a server told of it?
    told: AtomicBool,
    /// What a server that knows the rings may still write to beside them.
    beside: Mutex<Vec<buffer::Buffer>>,
    /// Where a ring begins with zeroes. Not so the tables, the largest part, which are written before
    /// they are pointed to.
    zeroed: Span,
    start: u64,
    size: u16,
    areas: Areas,
    suppression: Suppression,
    /// A head's table of three, and its header.
    lines: Span,
    /// A head's status.
    statuses: Span,
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
        size: u16,
        suppression: Suppression,
        entries: Option<u16>,
    ) -> io::Result<Self> {
        let layout = Layout::of(size);
        let count = usize::from(size);
        let parts = [
            layout.descriptor,
            layout.driver,
            layout.device,
            LINE * count,
            LINE * count,
            16 * count * usize::from(entries.unwrap_or(0)),
        ];
        let pages = |parts: &[usize]| parts.iter().map(|part| part.next_multiple_of(PAGE)).sum();
        let memory = pool.allocate(pages(&parts))?;
        let first = pages(&parts[..parts.len() - 1]);
        // SAFETY: the rings have the buffer, and are kept by the owner of the ring that is made of them (`Core`). Where
        // others still poll the index of a ring that is gone (`UsedIndex`), the pool has its arena.
        let all = unsafe { memory.span() };
        let mut rest = all;
        let mut next = |part: usize| {
            let (here, after) = rest.split_at(part.next_multiple_of(PAGE));
            rest = after;
            here.split_at(part).0
        };
        let [descriptors, driver, device, lines, statuses, tables] = parts.map(&mut next);
        let areas =
            Areas::new(u32::from(size), descriptors, driver, device).map_err(io::Error::other)?;
        let tables = entries.map(|entries| Tables {
            span: tables,
            address: address(tables),
            entries,
        });
        let rings = Self {
            zeroed: all.split_at(first).0,
            start: address(all),
            memory: Some(memory),
            stopped: OnceLock::new(),
            told: AtomicBool::new(false),
            beside: Mutex::default(),
            size,
            areas,
            suppression,
            lines,
            statuses,
            tables,
        };
        rings.clear();
        Ok(rings)
    }

    /// Makes them as they are at first: the memory may hold what a buffer before it held, or what was
    /// written by a server that is gone.
    pub fn clear(&self) {
        self.zeroed.zero();
        (0..self.size).for_each(|head| self.prepare(head));
    }

    /// A server is told of them now. Memory that none was told of goes back as it is.
    pub fn are_told(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    /// May a server still write to them?
    pub fn are_known(&self) -> bool {
        self.stopped_at().is_none()
    }

    /// A server that knows them may still write to `buffer`, too: it is used again when they are.
    pub fn retire_with(&self, buffer: buffer::Buffer) {
        lock(&self.beside).push(buffer);
    }

    /// Another server has come and gone since the one that knew them: the memory is used again once
    /// this has no owner any more.
    pub fn outlived(&self) {
        let _ = self.stopped.set(RingIndex(0));
    }

    /// The device has let go of the memory, which is used again once this has no owner any more. It would
    /// have taken the chain at `next` of the available ring next.
    pub fn stopped(&self, next: u16) {
        let set = self.stopped.set(RingIndex(next));
        debug_assert!(set.is_ok(), "a queue stops once");
    }

    /// Where it was, once it has: at the beginning, if it was never told of them.
    pub fn stopped_at(&self) -> Option<RingIndex> {
        let untold = || (!self.told.load(Ordering::Relaxed)).then_some(RingIndex(0));
        self.stopped.get().copied().or_else(untold)
    }

    /// Are there chains in them that no server has handed back, as far as the last one has told?
    pub fn are_in_use(&self) -> bool {
        self.areas.are_in_use()
    }

    /// Has the owner shown nothing in them yet?
    pub fn are_fresh(&self) -> bool {
        self.areas.are_fresh()
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

    #[inline]
    fn status_line(&self, head: u16) -> Span {
        self.statuses
            .slice(LINE * usize::from(head), LINE)
            .expect("there is a status for each head")
    }

    /// Fills what never changes of the head's table.
    fn prepare(&self, head: u16) {
        let (line, frame) = (self.line(head), self.frame(head));
        line.store(0, descriptor(frame.header, NEXT, 1));
        line.store(STATUS, descriptor(frame.status, WRITE, 0));
    }

    fn frame(&self, head: u16) -> Frame {
        let (line, status) = (address(self.line(head)), address(self.status_line(head)));
        let buffer = |address, len| Buffer { address, len };
        Frame {
            header: buffer(line + HEADER as u64, 16),
            range: buffer(status + RANGE as u64, 16),
            status: buffer(status, 1),
        }
    }

    /// Writes the header of the request at `head`, and marks its status as not written.
    #[inline]
    pub fn open(&self, head: u16, header: RequestHeader) -> Frame {
        self.line(head).store(HEADER, header.to_bytes());
        self.status_line(head).store(0, [NOT_WRITTEN]);
        self.frame(head)
    }

    /// The same for a request with one buffer of data, which is all that its table lacks. Returns that.
    #[inline]
    pub fn open_plain(
        &self,
        head: u16,
        header: RequestHeader,
        data: Buffer,
        direction: Direction,
    ) -> Buffer {
        let line = self.line(head);
        let flags = match direction {
            Direction::In => NEXT | WRITE,
            Direction::Out => NEXT,
        };
        line.store(DATA, descriptor(data, flags, 2));
        line.store(HEADER, header.to_bytes());
        self.status_line(head).store(0, [NOT_WRITTEN]);
        Buffer {
            address: address(line),
            len: 48,
        }
    }

    /// Writes the range of the request at `head`.
    pub fn set_range(&self, head: u16, range: RangeSegment) {
        self.status_line(head).store(RANGE, range.to_bytes());
    }

    /// The status that the device wrote for `head`.
    #[inline]
    pub fn status(&self, head: u16) -> u8 {
        let [status] = self.status_line(head).load(0);
        status
    }
}

const NEXT: u16 = DescriptorFlags::NEXT;
const WRITE: u16 = DescriptorFlags::WRITE;

/// A descriptor's bytes (VIRTIO 1.3, 2.7.5).
#[inline]
fn descriptor(Buffer { address, len }: Buffer, flags: u16, next: u16) -> [u8; 16] {
    pollux_ring::descriptor(address, len, DescriptorFlags(flags), next)
}

#[cfg(test)]
impl Rings {
    /// Writes to the used ring in the device's place: elements (head and length) from the first on, and
    /// the index.
    pub fn forge(&self, index: u16, elements: &[(u32, u32)]) {
        let memory = self.memory.as_ref().expect("it is not dropped");
        // SAFETY: used while `self` is borrowed, and no longer.
        let memory = unsafe { memory.span() };
        let used = usize::try_from(self.addresses().device - self.start).unwrap();
        for (at, (id, len)) in elements.iter().enumerate() {
            let element = (u64::from(*len) << 32) | u64::from(*id);
            memory.store(used + 4 + 8 * at, element.to_le_bytes());
        }
        memory.store(used + 2, index.to_le_bytes());
    }
}

/// No status of the specification.
const NOT_WRITTEN: u8 = 0xff;

impl Drop for Rings {
    fn drop(&mut self) {
        if self.are_known() {
            let beside = std::mem::take(&mut *lock(&self.beside));
            let all = self.memory.take().into_iter().chain(beside);
            all.for_each(buffer::Buffer::retire);
        }
    }
}
