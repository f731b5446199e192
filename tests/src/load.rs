//! Random requests on one queue, each checked against a [`Model`].
//!
//! Requests that are in flight together never overlap, so the order in which the device serves them
//! does not matter and every read has exactly one right answer. Now and then a request reaches
//! beyond the end of the disk: it must fail, and must not change anything.

use std::io;
use std::ops::Range;

use blkio::ReqFlags;
use rustix::io::Errno;

use crate::client::{Client, Memory, Queue};
use crate::model::{Model, SECTOR};
use crate::random::Random;

/// The longest request.
pub const MAX_LEN: usize = 1 << 20;
/// Memory of one request: its data, and room for gaps between its segments.
const WINDOW: usize = MAX_LEN + (64 << 10);
/// What memory holds before a read: no request may leave it where data should be, none may touch it
/// elsewhere.
const UNTOUCHED: u8 = 0xee;

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

    /// Bytes of memory that a load with these limits wants.
    pub const fn memory(&self) -> usize {
        self.depth * WINDOW
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    WriteZeroes,
    Discard,
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inside,
    BeyondTheEnd,
}

#[derive(Debug)]
struct InFlight {
    kind: Kind,
    place: Place,
    offset: u64,
    len: usize,
    /// Where its data lies in memory, in order.
    segments: Vec<Range<usize>>,
}

impl InFlight {
    fn overlaps(&self, offset: u64, len: usize) -> bool {
        self.kind != Kind::Flush
            && offset < self.offset + self.len as u64
            && self.offset < offset + len as u64
    }
}

/// A load on one queue. Its state outlives a [`Load::run`], so that one can follow another.
pub struct Load {
    limits: Limits,
    memory: Memory,
    model: Model,
    random: Random,
    noise: Vec<u8>,
    slots: Vec<Option<InFlight>>,
}

impl Load {
    /// A load on `range` of the disk, which reads as zeroes and which nobody else touches.
    pub fn new(
        client: &Client,
        limits: Limits,
        range: &Range<u64>,
        mut random: Random,
    ) -> io::Result<Self> {
        let mut noise = vec![0; 2 * MAX_LEN];
        random.fill(&mut noise);
        Ok(Self {
            limits,
            memory: client.memory(limits.memory())?,
            model: Model::zeroed(range),
            random,
            noise,
            slots: (0..limits.depth).map(|_| None).collect(),
        })
    }

    /// Issues `count` random requests and waits for all of them.
    pub fn run(&mut self, queue: &mut Queue, count: usize) -> io::Result<()> {
        let mut issued = self.issue_while_room(queue, count);
        while self.in_flight() > 0 {
            self.reap(queue)?;
            issued += self.issue_while_room(queue, count - issued);
        }
        Ok(())
    }

    /// Issues as many requests as the depth allows, and returns while they are in flight.
    pub fn leave_in_flight(mut self, queue: &mut Queue) -> io::Result<()> {
        self.issue_while_room(queue, usize::MAX);
        queue.wait(0)?;
        self.memory.abandon();
        Ok(())
    }

    /// Reads the whole range once more.
    pub fn verify(&mut self, queue: &mut Queue) -> io::Result<()> {
        let range = self.model.range();
        for offset in range.clone().step_by(MAX_LEN) {
            let left = usize::try_from(range.end - offset).expect("a model fits in memory");
            self.submit(queue, 0, InFlight::read(offset, left.min(MAX_LEN)));
            self.reap(queue)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn issue_while_room(&mut self, queue: &mut Queue, most: usize) -> usize {
        let mut issued = 0;
        for slot in 0..self.slots.len() {
            if issued < most && self.slots[slot].is_none() {
                let request = self.invent(slot);
                self.submit(queue, slot, request);
                issued += 1;
            }
        }
        issued
    }

    /// Waits for at least one request, and checks those that came back.
    fn reap(&mut self, queue: &mut Queue) -> io::Result<()> {
        queue.wait(1)?;
        while let Some(done) = queue.take() {
            let request = self.slots[done.token].take();
            let request =
                request.unwrap_or_else(|| panic!("request {} came back twice", done.token));
            let expected = match request.place {
                Place::Inside => Ok(()),
                Place::BeyondTheEnd => Err(Errno::IO),
            };
            assert_eq!(done.result, expected, "{request:?}");
            if request.kind == Kind::Read && request.place == Place::Inside {
                self.check(done.token, &request);
            }
        }
        Ok(())
    }

    fn check(&mut self, slot: usize, request: &InFlight) {
        let mut window = vec![0; WINDOW];
        let base = slot * WINDOW;
        self.memory.get(base, &mut window);
        let mut data = Vec::with_capacity(request.len);
        let mut outside = base;
        for segment in &request.segments {
            let gap = &window[outside - base..segment.start - base];
            assert!(
                gap.iter().all(|byte| *byte == UNTOUCHED),
                "written beside {segment:?} of {request:?}"
            );
            data.extend_from_slice(&window[segment.start - base..segment.end - base]);
            outside = segment.end;
        }
        if let Err(mismatch) = self.model.check(request.offset, &data) {
            panic!("{mismatch}, in {request:?}");
        }
    }
}

/// Inventing requests.
impl Load {
    fn invent(&mut self, slot: usize) -> InFlight {
        let kind = match self.random.below(20) {
            0..8 => Kind::Read,
            8..15 => Kind::Write,
            15..17 => Kind::WriteZeroes,
            17..19 => Kind::Discard,
            _ => Kind::Flush,
        };
        let beyond = kind != Kind::Flush && self.random.one_in(40);
        let place = if beyond {
            Place::BeyondTheEnd
        } else {
            Place::Inside
        };
        let (offset, len) = match place {
            Place::Inside => self.free_range(),
            Place::BeyondTheEnd => (self.limits.capacity + self.blocks(1 << 30), self.length()),
        };
        let segments = self.cut(slot, len);
        InFlight {
            kind,
            place,
            offset,
            len,
            segments,
        }
    }

    /// As many small lengths as large ones: first a magnitude, then a number of blocks below it.
    fn length(&mut self) -> usize {
        let most = MAX_LEN / self.limits.block;
        let magnitude = 1 << self.random.index(most.ilog2() as usize + 1);
        (1 + self.random.index(magnitude)) * self.limits.block
    }

    /// Whole blocks, below `bound` bytes.
    fn blocks(&mut self, bound: u64) -> u64 {
        let block = self.limits.block as u64;
        self.random.below(bound / block) * block
    }

    /// A range that no request in flight touches.
    fn free_range(&mut self) -> (u64, usize) {
        let range = self.model.range();
        loop {
            let len = self.length();
            let Some(room) = (range.end - range.start).checked_sub(len as u64) else {
                continue;
            };
            let offset = range.start + self.blocks(room + self.limits.block as u64);
            if !self
                .slots
                .iter()
                .flatten()
                .any(|other| other.overlaps(offset, len))
            {
                return (offset, len);
            }
        }
    }

    /// Cuts `len` bytes of a slot's window into an odd number of segments of any length, not only
    /// whole sectors, with gaps between them.
    fn cut(&mut self, slot: usize, len: usize) -> Vec<Range<usize>> {
        let most = self.limits.segments.min(127).min(len);
        let wanted = if self.random.one_in(2) {
            1
        } else {
            1 + 2 * self.random.index(most.div_ceil(2))
        };
        let mut cuts: Vec<usize> = (1..wanted).map(|_| self.random.within(1..len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut at = slot * WINDOW;
        let place = |pair: &[usize]| {
            at += self.random.index(256);
            let segment = at..at + pair[1] - pair[0];
            at = segment.end;
            segment
        };
        cuts.windows(2).map(place).collect()
    }
}

impl InFlight {
    fn read(offset: u64, len: usize) -> Self {
        let whole = 0..len;
        Self {
            kind: Kind::Read,
            place: Place::Inside,
            offset,
            len,
            segments: vec![whole],
        }
    }
}

/// Submitting them. The model changes here: nothing else can look at the range until it is done.
impl Load {
    fn submit(&mut self, queue: &mut Queue, slot: usize, request: InFlight) {
        match request.kind {
            Kind::Read => self.submit_read(queue, slot, &request),
            Kind::Write => self.submit_write(queue, slot, &request),
            Kind::WriteZeroes => {
                let flags = if self.random.one_in(2) {
                    ReqFlags::NO_UNMAP
                } else {
                    ReqFlags::empty()
                };
                queue.write_zeroes(request.offset, request.len as u64, slot, flags);
                if request.place == Place::Inside {
                    self.model.zero(request.offset, request.len);
                }
            }
            Kind::Discard => {
                queue.discard(request.offset, request.len as u64, slot);
                if request.place == Place::Inside {
                    self.model.discard(request.offset, request.len);
                }
            }
            Kind::Flush => queue.flush(slot),
        }
        self.slots[slot] = Some(request);
    }

    fn submit_read(&mut self, queue: &mut Queue, slot: usize, request: &InFlight) {
        self.memory
            .fill(slot * WINDOW..(slot + 1) * WINDOW, UNTOUCHED);
        match request.segments.as_slice() {
            [one] => queue.read(request.offset, &self.memory, one.clone(), slot),
            many => queue.read_vectored(request.offset, &self.memory, many, slot),
        }
    }

    fn submit_write(&mut self, queue: &mut Queue, slot: usize, request: &InFlight) {
        let from = self.random.index(self.noise.len() - request.len);
        let data = &self.noise[from..from + request.len];
        let mut rest = data;
        for segment in &request.segments {
            let (part, after) = rest.split_at(segment.len());
            self.memory.put(segment.start, part);
            rest = after;
        }
        if request.place == Place::Inside {
            self.model.write(request.offset, data);
        }
        let flags = if self.random.one_in(8) {
            ReqFlags::FUA
        } else {
            ReqFlags::empty()
        };
        match request.segments.as_slice() {
            [one] => queue.write(request.offset, &self.memory, one.clone(), slot, flags),
            many => queue.write_vectored(request.offset, &self.memory, many, slot, flags),
        }
    }
}

const _: () = assert!(WINDOW - MAX_LEN >= 127 * 256, "the gaps fit");
const _: () = assert!(MAX_LEN.is_multiple_of(SECTOR));
