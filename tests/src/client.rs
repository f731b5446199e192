//! An independent client: libblkio's own Rust implementation, driver `virtio-blk-vhost-user`.
//!
//! It shares no code with Pollux, so what it reads back is evidence. This wrapper adds three things
//! to the crate: memory that can be addressed by offset and cannot outlive its connection, owned
//! segment lists (libblkio keeps a raw pointer to them), and a patience after which a request that
//! was never answered becomes an error instead of a test that hangs.
//!
//! Two ways to wait, chosen for all queues of a connection. [`Waiting::Polling`] takes libblkio's
//! *poll queues*: waiting spins on the used index, and no call is asked for. [`Waiting::Blocking`]
//! takes its ordinary queues: only when nothing is there, `do_io` asks for a call, looks once more
//! and sleeps in `ppoll` on the call fd.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags, iovec};
use pollux_memory::Span;
use rustix::io::Errno;

/// How a queue waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Spin on the used index; never sleep, never ask for a call.
    Polling,
    /// Sleep until the device calls.
    Blocking,
}

/// What the client asks of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes; libblkio refuses to open a read-only disk so.
    ReadWrite,
    /// Reads only; libblkio refuses writes itself.
    ReadOnly,
}

/// The shape of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many queues to open.
    pub queues: u16,
    /// Descriptors of each queue, a power of two.
    pub queue_size: u16,
    /// How all of them wait.
    pub waiting: Waiting,
    /// Whether writes are wanted.
    pub access: Access,
}

impl Shape {
    /// `queues` queues of `queue_size` that sleep while they wait, for reading and writing.
    pub const fn blocking(queues: u16, queue_size: u16) -> Self {
        let waiting = Waiting::Blocking;
        let access = Access::ReadWrite;
        Self {
            queues,
            queue_size,
            waiting,
            access,
        }
    }

    /// `queues` queues of `queue_size` that spin while they wait, for reading and writing.
    pub const fn polling(queues: u16, queue_size: u16) -> Self {
        let waiting = Waiting::Polling;
        Self {
            waiting,
            ..Self::blocking(queues, queue_size)
        }
    }
}

/// A connection to a vhost-user-blk server. Memory and queues made from it keep it open.
#[derive(Clone)]
pub struct Client(Arc<Mutex<Blkio>>);

impl Client {
    /// Connects to `socket` and starts the queues.
    pub fn connect(socket: &Path, shape: Shape) -> io::Result<(Self, Vec<Queue>)> {
        let path = socket.to_str().expect("a test's socket path is text");
        let mut blkio = Blkio::new("virtio-blk-vhost-user").map_err(doing("find the driver"))?;
        blkio.set_str("path", path).map_err(doing("set path"))?;
        let read_only = shape.access == Access::ReadOnly;
        blkio
            .set_bool("read-only", read_only)
            .map_err(doing("set read-only"))?;
        blkio.connect().map_err(doing("connect"))?;

        let (sleeping, spinning) = match shape.waiting {
            Waiting::Blocking => (shape.queues, 0),
            Waiting::Polling => (0, shape.queues),
        };
        for (name, value) in [
            ("queue-size", shape.queue_size),
            ("num-queues", sleeping),
            ("num-poll-queues", spinning),
        ] {
            blkio.set_i32(name, i32::from(value)).map_err(doing(name))?;
        }
        let started = blkio.start().map_err(doing("start the queues"))?;

        let client = Self(Arc::new(Mutex::new(blkio)));
        let queues = started.queues.into_iter().chain(started.poll_queues);
        let queues = queues.map(|blkioq| Queue::new(blkioq, client.clone(), shape.queue_size));
        let queues = queues.collect();
        Ok((client, queues))
    }

    fn blkio(&self) -> MutexGuard<'_, Blkio> {
        self.0.lock().expect("no user of the connection panics")
    }

    /// Bytes of the disk.
    pub fn capacity(&self) -> io::Result<u64> {
        self.blkio().get_u64("capacity").map_err(doing("capacity"))
    }

    /// The most data segments that a request may have (the device's `SEG_MAX`).
    pub fn max_segments(&self) -> io::Result<usize> {
        let segments = self.number("max-segments")?;
        Ok(usize::try_from(segments).unwrap_or(1))
    }

    /// An integer property of libblkio, such as `max-queues` or `request-alignment`.
    pub fn number(&self, property: &str) -> io::Result<i32> {
        self.blkio().get_i32(property).map_err(doing(property))
    }

    /// A long integer property of libblkio, such as `max-mem-regions` or `max-discard-len`.
    pub fn long(&self, property: &str) -> io::Result<u64> {
        self.blkio().get_u64(property).map_err(doing(property))
    }

    /// Allocates `len` bytes (whole pages) and has the server map them, for use by any queue.
    pub fn memory(&self, len: usize) -> io::Result<Memory> {
        let mut blkio = self.blkio();
        let region = blkio
            .alloc_mem_region(len)
            .map_err(doing("allocate memory"))?;
        if let Err(problem) = blkio.map_mem_region(&region) {
            blkio.free_mem_region(&region);
            return Err(doing("map memory")(problem));
        }
        drop(blkio);
        Ok(Memory {
            region,
            client: self.clone(),
            at_drop: AtDrop::Unmap,
        })
    }
}

/// What becomes of memory that is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtDrop {
    Unmap,
    LeaveToConnection,
}

/// Memory that client and server share. Dropping it has the server unmap it.
pub struct Memory {
    region: MemoryRegion,
    client: Client,
    at_drop: AtDrop,
}

impl Memory {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Never: the server refuses regions without a byte.
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// Copies `bytes` to `offset`.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset..offset + bytes.len());
        // SAFETY: `pointer` checked the range against the mapping, which lives as long as `self`;
        // the server may write there at the same time, hence a raw copy and no reference.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Copies from `offset` into `bytes`.
    pub fn get(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer(offset..offset + bytes.len());
        // SAFETY: as in `put`.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Sets every byte of `range` to `byte`.
    pub fn fill(&self, range: Range<usize>, byte: u8) {
        let len = range.len();
        let to = self.pointer(range);
        // SAFETY: as in `put`.
        unsafe { to.write_bytes(byte, len) }
    }

    /// `range` of it.
    ///
    /// # Safety
    ///
    /// The memory is kept until nobody uses the span any more.
    pub unsafe fn span(&self, range: Range<usize>) -> Span {
        let len = range.len();
        let start = NonNull::new(self.pointer(range)).expect("no memory lies at 0");
        // SAFETY: by this function's own promise; `pointer` has checked the range.
        unsafe { Span::new(start, len) }
    }

    /// Leaves the memory mapped until the connection ends: for ending one with requests in flight.
    pub fn abandon(mut self) {
        self.at_drop = AtDrop::LeaveToConnection;
    }

    fn pointer(&self, range: Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.region.len,
            "{range:?} leaves the memory"
        );
        (self.region.addr + range.start) as *mut u8
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.at_drop == AtDrop::Unmap {
            let mut blkio = self.client.blkio();
            blkio.unmap_mem_region(&self.region);
            blkio.free_mem_region(&self.region);
        }
    }
}

/// A request that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number it was submitted with.
    pub token: usize,
    /// EIO for `VIRTIO_BLK_S_IOERR`, ENOTSUP for `VIRTIO_BLK_S_UNSUPP`.
    pub result: Result<(), Errno>,
}

/// How long a test waits for an answer before it calls the request lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// One queue. It can be sent to a thread of its own.
pub struct Queue {
    blkioq: Blkioq,
    /// What the last wait returned: `returned` are filled in, `taken` of these are told.
    completions: Box<[MaybeUninit<Completion>]>,
    returned: usize,
    taken: usize,
    /// libblkio remembers where a segment list lies, not what is in it.
    segments: HashMap<usize, Box<[iovec]>>,
    /// Last: the rings are part of the connection.
    _client: Client,
}

// SAFETY: all that is not `Send` by itself are the pointers in `segments`; nobody follows them but
// the server.
unsafe impl Send for Queue {}

impl Queue {
    fn new(blkioq: Blkioq, client: Client, queue_size: u16) -> Self {
        let completions = (0..queue_size).map(|_| MaybeUninit::uninit()).collect();
        Self {
            blkioq,
            completions,
            returned: 0,
            taken: 0,
            segments: HashMap::new(),
            _client: client,
        }
    }

    /// Reads `range` of `memory` from the disk at `offset`.
    pub fn read(&mut self, offset: u64, memory: &Memory, range: Range<usize>, token: usize) {
        let len = range.len();
        self.blkioq
            .read(offset, memory.pointer(range), len, token, ReqFlags::empty());
    }

    /// Writes `range` of `memory` to the disk at `offset`; with [`ReqFlags::FUA`], a flush follows.
    pub fn write(
        &mut self,
        offset: u64,
        memory: &Memory,
        range: Range<usize>,
        token: usize,
        flags: ReqFlags,
    ) {
        let len = range.len();
        self.blkioq
            .write(offset, memory.pointer(range), len, token, flags);
    }

    /// Reads into `ranges` of `memory`, one after the other.
    pub fn read_vectored(
        &mut self,
        offset: u64,
        memory: &Memory,
        ranges: &[Range<usize>],
        token: usize,
    ) {
        let (first, count) = self.keep_segments(memory, ranges, token);
        self.blkioq
            .readv(offset, first, count, token, ReqFlags::empty());
    }

    /// Writes from `ranges` of `memory`, one after the other.
    pub fn write_vectored(
        &mut self,
        offset: u64,
        memory: &Memory,
        ranges: &[Range<usize>],
        token: usize,
        flags: ReqFlags,
    ) {
        let (first, count) = self.keep_segments(memory, ranges, token);
        self.blkioq.writev(offset, first, count, token, flags);
    }

    fn keep_segments(
        &mut self,
        memory: &Memory,
        ranges: &[Range<usize>],
        token: usize,
    ) -> (*const iovec, u32) {
        let segment = |range: &Range<usize>| iovec {
            iov_base: memory.pointer(range.clone()).cast(),
            iov_len: range.len(),
        };
        let list: Box<[iovec]> = ranges.iter().map(segment).collect();
        let found = (
            list.as_ptr(),
            u32::try_from(list.len()).expect("few segments"),
        );
        self.segments.insert(token, list);
        found
    }

    /// Makes `len` bytes at `offset` read as zeroes; [`ReqFlags::NO_UNMAP`] keeps them allocated.
    pub fn write_zeroes(&mut self, offset: u64, len: u64, token: usize, flags: ReqFlags) {
        self.blkioq.write_zeroes(offset, len, token, flags);
    }

    /// Declares `len` bytes at `offset` unneeded.
    pub fn discard(&mut self, offset: u64, len: u64, token: usize) {
        self.blkioq.discard(offset, len, token, ReqFlags::empty());
    }

    /// Makes every write that has come back durable.
    pub fn flush(&mut self, token: usize) {
        self.blkioq.flush(token, ReqFlags::empty());
    }

    /// Submits what was queued and waits until `at_least` requests have come back, to be had from
    /// [`Queue::take`]. With 0 it looks once and does not wait.
    ///
    /// # Errors
    /// When a minute passes without: the request is lost, or the server is dead.
    pub fn wait(&mut self, at_least: usize) -> io::Result<()> {
        self.wait_within(at_least, Some(PATIENCE))
    }

    /// No wait returns more than `most` from now on, as in a program that sends another request as soon as it has one
    /// back.
    pub fn return_at_most(&mut self, most: usize) {
        assert_eq!(self.taken, self.returned, "a completion would be lost");
        self.completions = (0..most).map(|_| MaybeUninit::uninit()).collect();
    }

    /// Like [`Queue::wait`] with another limit, or with none and without reading the clock: for
    /// benchmarks.
    pub fn wait_within(
        &mut self,
        at_least: usize,
        mut patience: Option<Duration>,
    ) -> io::Result<()> {
        assert_eq!(self.taken, self.returned, "a completion would be lost");
        self.taken = 0;
        self.returned = 0;
        self.returned = self
            .blkioq
            .do_io(&mut self.completions, at_least, patience.as_mut(), None)
            .map_err(doing("wait for completions"))?;
        Ok(())
    }

    /// The next request that came back in the last wait.
    pub fn take(&mut self) -> Option<Done> {
        if self.taken == self.returned {
            return None;
        }
        // SAFETY: `do_io` filled in the first `returned` of them, and `taken` is below that.
        let completion = unsafe { self.completions[self.taken].assume_init_ref() };
        self.taken += 1;
        let token = completion.user_data;
        if !self.segments.is_empty() {
            self.segments.remove(&token);
        }
        Some(Done {
            token,
            result: outcome(completion.ret),
        })
    }

    /// Waits for the one request that is outstanding, and returns how it ended.
    pub fn finish(&mut self) -> io::Result<Result<(), Errno>> {
        self.wait(1)?;
        let done = self.take().expect("`wait` has seen one");
        assert_eq!(
            self.taken, self.returned,
            "only one request was outstanding"
        );
        Ok(done.result)
    }
}

fn outcome(ret: i32) -> Result<(), Errno> {
    if ret == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw_os_error(-ret))
    }
}

/// Says what we were doing when libblkio refused, and keeps the kind of the error.
fn doing(what: &str) -> impl FnOnce(blkio::Error) -> io::Error + '_ {
    move |problem| {
        let kind = match problem.errno().raw_os_error() {
            late if late == Errno::TIME.raw_os_error() => io::ErrorKind::TimedOut,
            other => io::Error::from_raw_os_error(other).kind(),
        };
        io::Error::new(kind, format!("libblkio could not {what}: {problem}"))
    }
}
