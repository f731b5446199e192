//! Random requests by libblkio on one queue, each checked against a model of the disk.
//!
//! Which requests, and whether they did what they should, is [`Work`]'s, as for our driver. It is no load to measure
//! (crate `load`): its requests are of every kind, length and layout, and each byte of memory and disk is looked at.
//! Now and then a request reaches beyond the end of the disk: it must fail, and must not change anything.

use std::io;
use std::ops::Range;

use blkio::ReqFlags;
use fastrand::Rng;
use pollux_disk::{Durability, Geometry, RangeLimits, Unmap};
use rustix::io::Errno;

use crate::client::{Client, Memory, Queue};
use crate::drive::{Job, Op, Window, Work};

/// The longest request.
const MAX_LEN: usize = 1 << 20;
/// Memory of one request: its data, and room for gaps between its segments.
const WINDOW: usize = MAX_LEN + (64 << 10);

/// What limits the requests of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the whole disk.
    pub capacity: u64,
    /// Requests in flight; more than the ring holds wait inside libblkio.
    pub depth: usize,
    /// Data segments of one request.
    pub segments: usize,
    /// The unit of offsets and lengths.
    pub block: usize,
}

impl Limits {
    /// What `client` says, for queues of `queue_size`. libblkio knows no indirect descriptors: a
    /// request takes a descriptor for its header, one for its status, and one a segment.
    pub fn of(client: &Client, queue_size: u16, depth: usize) -> io::Result<Self> {
        let block = client.number("request-alignment")?;
        Ok(Self {
            capacity: client.capacity()?,
            depth,
            segments: client.max_segments()?.min(usize::from(queue_size) - 2),
            block: usize::try_from(block).expect("a block has a size"),
        })
    }
}

/// A load on one queue. Its state outlives a [`Load::run`], so that one can follow another.
pub struct Load {
    limits: Limits,
    work: Work,
    slots: Vec<Slot>,
    /// What the windows lie in.
    memory: Memory,
}

struct Slot {
    window: Window,
    /// The request in flight, and what it writes.
    busy: Option<(Job, Vec<u8>)>,
}

impl Load {
    /// A load on `range` of the disk, which reads as zeroes and which nobody else touches.
    pub fn new(
        client: &Client,
        limits: Limits,
        range: &Range<u64>,
        random: Rng,
    ) -> io::Result<Self> {
        let memory = client.memory(limits.depth * WINDOW)?;
        let window = |slot: usize| {
            let range = slot * WINDOW..(slot + 1) * WINDOW;
            // SAFETY: the memory goes after the windows, and they outlive the requests that they are lent to, or
            // nothing reads them any more.
            Window::of(unsafe { memory.span(range) })
        };
        let slot = |slot| Slot {
            window: window(slot),
            busy: None,
        };
        let ranges = Some(RangeLimits {
            max_bytes: MAX_LEN as u64,
            alignment: 0,
        });
        let geometry = Geometry {
            block: u32::try_from(limits.block).expect("a block is small"),
            discard: ranges,
            write_zeroes: ranges,
            ..Geometry::plain(limits.capacity)
        };
        Ok(Self {
            slots: (0..limits.depth).map(slot).collect(),
            work: Work::new(range, geometry, MAX_LEN, random),
            limits,
            memory,
        })
    }

    /// Issues `count` random requests and waits for all of them.
    pub fn run(&mut self, queue: &mut Queue, count: usize) -> io::Result<()> {
        let mut left = count;
        self.until_over(queue, |load| {
            left = left.checked_sub(1)?;
            Some(load.invent())
        })
    }

    /// Reads the whole range once more.
    pub fn verify(&mut self, queue: &mut Queue) -> io::Result<()> {
        self.until_over(queue, |load| load.work.next_to_verify(MAX_LEN))
    }

    /// Keeps every slot busy until there is no `next` request, and waits for all.
    fn until_over(
        &mut self,
        queue: &mut Queue,
        mut next: impl FnMut(&mut Self) -> Option<Job>,
    ) -> io::Result<()> {
        loop {
            for slot in 0..self.slots.len() {
                if self.slots[slot].busy.is_none()
                    && let Some(job) = next(self)
                {
                    self.submit(queue, slot, job);
                }
            }
            if self.slots.iter().all(|slot| slot.busy.is_none()) {
                return Ok(());
            }
            queue.wait(1)?;
            while let Some(done) = queue.take() {
                self.check(done.token, done.result);
            }
        }
    }

    fn invent(&mut self) -> Job {
        let job = self.work.next(MAX_LEN);
        if job.op == Op::Flush || self.work.random.u64(..40) != 0 {
            return job;
        }
        self.work.forget(&job);
        let block = self.limits.block as u64;
        let beyond = self.work.random.u64(..(1 << 30) / block) * block;
        Job {
            at: self.limits.capacity + beyond,
            ..job
        }
    }

    fn submit(&mut self, queue: &mut Queue, slot: usize, job: Job) {
        let data = match job.op {
            Op::Write(_) => self.work.noise(job.len),
            _ => vec![],
        };
        let segments = if job.has_data() {
            self.lay_out(slot, job.len, &data)
        } else {
            vec![]
        };
        let (at, len) = (job.at, job.len as u64);
        match (job.op, &segments[..]) {
            (Op::Read, [one]) => queue.read(at, &self.memory, one.clone(), slot),
            (Op::Read, many) => queue.read_vectored(at, &self.memory, many, slot),
            (Op::Write(durability), [one]) => {
                queue.write(at, &self.memory, one.clone(), slot, fua(durability));
            }
            (Op::Write(durability), many) => {
                queue.write_vectored(at, &self.memory, many, slot, fua(durability));
            }
            (Op::Flush, _) => queue.flush(slot),
            (Op::Discard, _) => queue.discard(at, len, slot),
            (Op::WriteZeroes(unmap, _), _) => {
                let flags = match unmap {
                    Unmap::Allowed => ReqFlags::empty(),
                    Unmap::Forbidden => ReqFlags::NO_UNMAP,
                };
                queue.write_zeroes(at, len, slot, flags);
            }
        }
        self.slots[slot].busy = Some((job, data));
    }

    /// Where the data of a request lies in memory, in order.
    fn lay_out(&mut self, slot: usize, len: usize, data: &[u8]) -> Vec<Range<usize>> {
        let mut pieces = self.work.pieces(len, self.limits.segments);
        let most = self.limits.segments.min(pieces.len());
        let rest = pieces.drain(most - 1..).sum();
        pieces.push(rest);
        let window = &mut self.slots[slot].window;
        window.lay_out(&pieces, &mut self.work.random);
        if !data.is_empty() {
            window.fill(data);
        }
        let range = |at: usize, len| slot * WINDOW + at..slot * WINDOW + at + len;
        window.places().map(|(at, len)| range(at, len)).collect()
    }

    fn check(&mut self, slot: usize, result: Result<(), Errno>) {
        let slot = &mut self.slots[slot];
        let (job, written) = slot.busy.take().expect("each request comes back once");
        if job.at >= self.limits.capacity && job.op != Op::Flush {
            return assert_eq!(result, Err(Errno::IO), "{job:x?}");
        }
        assert_eq!(result, Ok(()), "{job:x?}");
        match job.op {
            Op::Read => self.work.ended(&job, &slot.window.data()),
            _ => self.work.ended(&job, &written),
        }
    }
}

fn fua(durability: Durability) -> ReqFlags {
    match durability {
        Durability::Volatile => ReqFlags::empty(),
        Durability::Stable => ReqFlags::FUA,
    }
}
