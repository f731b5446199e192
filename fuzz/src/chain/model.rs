//! What a queue has to do, written a second time: slow, plain, byte by byte, from VIRTIO 1.3 (2.7 and
//! 5.2.6) and from what DESIGN.md decides beyond it.

use pollux_blk::Status;
use pollux_device::fuzzing::SingleQueue;
use pollux_disk::Failure;
use pollux_ring::MAX_CHAIN;

use super::disk::DISCARDED;
use super::memory::{REGION, Ring, SEAM, place};
use super::{DISK, RANGE, SERIAL, Setup};

/// The most chains of a turn.
const BUDGET: u16 = 64;

pub struct Model {
    setup: Setup,
    /// Guest memory, as [`place`] counts it.
    pub memory: Vec<u8>,
    /// The disk.
    pub disk: Vec<u8>,
    /// Which of its sectors take up room.
    pub allocated: Vec<bool>,
    /// The index of the chain that is taken next.
    pub next: u16,
    /// Did the driver break the ring?
    pub broken: bool,
    requests: Vec<Request>,
    pending: Vec<Part>,
    ended: Vec<(usize, Result<(), Failure>)>,
    in_flight: u16,
    /// The work of this turn.
    work: u64,
    used_from: u16,
    /// Heads and lengths that came back since the last look.
    used: Vec<(u16, u32)>,
}

/// A request that was taken.
struct Request {
    head: u16,
    status: Option<u64>,
    /// What comes back when it succeeds.
    written: u32,
    parts: usize,
    outcome: Status,
}

/// What the disk is to do for a request.
struct Part {
    request: usize,
    work: Work,
}

enum Work {
    Read { at: usize, into: Vec<u64> },
    Write { at: usize, from: Vec<u64> },
    Zero { at: usize, len: usize, unmap: bool },
    Discard { at: usize, len: usize },
    Flush,
}

impl Work {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { from, .. } => from.len(),
            Self::Zero { len, .. } | Self::Discard { len, .. } => *len,
            Self::Flush => 0,
        };
        bytes as u64
    }
}

/// A stretch of memory of one region: an address, a length.
type Piece = (u64, u64);

/// The buffers of a chain, cut where regions meet.
#[derive(Default)]
struct Chain {
    readable: Vec<Piece>,
    writable: Vec<Piece>,
    /// Has any buffer been writable, an empty one included?
    has_writable: bool,
    /// How often a buffer was cut.
    cuts: usize,
    /// How many descriptors had no bytes, and how many a table has that is cut.
    unseen: usize,
}

struct Broken;

impl Model {
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            memory: vec![0; 3 * REGION],
            disk: vec![0; small(DISK.into())],
            allocated: vec![false; small(DISK.into()) / 512],
            next: setup.next,
            broken: false,
            requests: Vec::new(),
            pending: Vec::new(),
            ended: Vec::new(),
            in_flight: 0,
            work: 0,
            used_from: setup.used,
            used: Vec::new(),
        }
    }

    pub fn size(&self) -> u16 {
        self.setup.size()
    }

    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The used elements since the last look, and the index of the first.
    pub fn used(&self) -> (u16, &[(u16, u32)]) {
        (self.used_from, &self.used)
    }

    /// Has the driver to be called for them? With `EVENT_IDX`, if the one that it named is among them (2.7.10).
    pub fn calls(&self, ring: &Ring) -> bool {
        let shown = self.used.len();
        if self.setup.event_idx {
            let event = ring.used_event(self.size());
            usize::from(event.wrapping_sub(self.used_from)) < shown
        } else {
            shown > 0 && ring.flags() & 1 == 0
        }
    }

    pub fn was_seen(&mut self) {
        for _ in self.used.drain(..) {
            self.used_from = self.used_from.wrapping_add(1);
        }
    }

    /// One turn of the worker, which took so many chains. It has to take what is there and finds a free place, until it
    /// has taken as many, or done as much work, as a turn does; whether it looks again where places became free
    /// meanwhile is a matter of its policy.
    pub fn turn(&mut self, ring: &Ring, taken: u16) {
        self.reap();
        if self.broken {
            assert_eq!(taken, 0, "chains of a broken ring");
            return;
        }
        let available = ring.available_idx().wrapping_sub(self.next);
        if available > self.size() {
            self.broken = true;
            assert_eq!(taken, 1, "a break counts as a chain");
            return;
        }
        let most = available.min(BUDGET);
        let least = most.min(self.size() - self.in_flight);
        self.work = 0;
        for number in 1..=taken {
            assert!(
                self.work <= SingleQueue::ENOUGH,
                "a chain beyond the turn's work"
            );
            assert!(self.in_flight < self.size(), "a chain without a place");
            let head = ring.entry(self.next % self.size());
            self.next = self.next.wrapping_add(1);
            let Ok(chain) = self.walk(ring, head) else {
                self.broken = true;
                assert_eq!(number, taken, "a broken chain is the last");
                return;
            };
            self.begin(head, chain);
        }
        let enough = taken >= least || self.work > SingleQueue::ENOUGH;
        assert!(
            enough && taken <= most,
            "{taken} chains of {least} to {most}"
        );
        if self.setup.kicks_per_turn {
            self.arm(ring);
        }
    }

    /// May the worker sleep? A queue without kicks lets it only when there is nothing to look for.
    pub fn arm(&mut self, ring: &Ring) -> bool {
        let resting = self.broken || self.in_flight == self.size();
        if !resting && ring.available_idx().wrapping_sub(self.next) > self.size() {
            self.broken = true;
        }
        (resting || self.broken) && self.ended.is_empty()
    }

    /// The disk ends one of its parts.
    pub fn end(&mut self, which: u8, result: Result<(), Failure>) {
        if self.pending.is_empty() {
            return;
        }
        let part = self.pending.remove(usize::from(which) % self.pending.len());
        if result.is_ok() {
            self.carry_out(&part.work);
        }
        self.ended.push((part.request, result));
    }

    pub fn end_all(&mut self) {
        while self.pending() > 0 {
            self.end(0, Ok(()));
        }
    }

    pub fn reap(&mut self) {
        for (request, result) in std::mem::take(&mut self.ended) {
            self.part_ended(request, result);
        }
    }

    fn part_ended(&mut self, number: usize, result: Result<(), Failure>) {
        let request = &mut self.requests[number];
        match result {
            Ok(()) => {}
            Err(Failure::Unsupported) => request.outcome = Status::Unsupp,
            Err(_) => request.outcome = Status::IoErr,
        }
        request.parts -= 1;
        if request.parts == 0 {
            self.finish(number);
        }
    }

    fn finish(&mut self, number: usize) {
        let request = &self.requests[number];
        let written = match (request.status, request.outcome) {
            (None, _) => 0,
            (Some(_), Status::Ok) => request.written + 1,
            (Some(_), _) => 1,
        };
        self.used.push((request.head, written));
        let (status, outcome) = (request.status, request.outcome);
        if let Some(at) = status {
            *self.byte(at) = outcome.wire();
        }
        self.in_flight -= 1;
    }

    fn byte(&mut self, address: u64) -> &mut u8 {
        let at = place(address).expect("a walk finds memory only");
        &mut self.memory[at]
    }

    fn load<const N: usize>(&mut self, from: impl IntoIterator<Item = u64>) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut from = from.into_iter();
        for byte in &mut bytes {
            *byte = *self.byte(from.next()?);
        }
        Some(bytes)
    }

    /// Begins what the chain asks for, and ends it where the disk is quick or has nothing to do.
    fn begin(&mut self, head: u16, mut chain: Chain) {
        self.in_flight += 1;
        let steps = chain.readable.len() + chain.writable.len() + chain.unseen;
        self.work += SingleQueue::STEP * steps as u64;
        let status = chain.take_last_byte();
        let number = self.requests.len();
        self.requests.push(Request {
            head,
            status,
            written: 0,
            parts: 0,
            outcome: Status::Ok,
        });
        match self.work(&chain, number) {
            Err(status) => self.requests[number].outcome = status,
            Ok(work) if work.is_empty() => {}
            Ok(work) => {
                self.work += work.iter().map(Work::bytes).sum::<u64>();
                self.requests[number].parts = work.len();
                for work in work {
                    if self.setup.slow {
                        let request = number;
                        self.pending.push(Part { request, work });
                    } else {
                        self.carry_out(&work);
                        self.part_ended(number, Ok(()));
                    }
                }
                return;
            }
        }
        self.finish(number);
    }

    /// What the disk is to do.
    fn work(&mut self, chain: &Chain, number: usize) -> Result<Vec<Work>, Status> {
        let mut readable = addresses(&chain.readable);
        let header: [u8; 16] = self.load(readable.by_ref()).ok_or(Status::IoErr)?;
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let read_only = self.setup.read_only;
        match kind {
            0 => {
                let (at, bytes) = self.data(&chain.writable, chain.cuts, sector)?;
                self.requests[number].written = bytes;
                let into = addresses(&chain.writable).collect();
                Ok(Vec::from_iter(
                    (bytes > 0).then_some(Work::Read { at, into }),
                ))
            }
            1 if read_only => Err(Status::IoErr),
            1 => {
                let data = without_front(&chain.readable, 16);
                let (at, bytes) = self.data(&data, chain.cuts, sector)?;
                let from = readable.collect();
                Ok(Vec::from_iter(
                    (bytes > 0).then_some(Work::Write { at, from }),
                ))
            }
            4 => Ok(vec![Work::Flush]),
            8 => {
                let serial = pollux_blk::serial(SERIAL);
                for (to, byte) in addresses(&chain.writable).zip(serial) {
                    *self.byte(to) = byte;
                    self.requests[number].written += 1;
                }
                Ok(Vec::new())
            }
            11 | 13 => self.ranges(readable, kind == 11),
            _ => Err(Status::Unsupp),
        }
    }

    /// Where on the disk data lies, and its length.
    fn data(&self, pieces: &[Piece], cuts: usize, sector: u64) -> Result<(usize, u32), Status> {
        let segments = pieces.len().saturating_sub(cuts);
        let most = self.setup.seg_max().unwrap_or(SingleQueue::SEG_MAX);
        if segments > most as usize {
            return Err(Status::IoErr);
        }
        let longest = self.setup.size_max().map(u64::from);
        if pieces
            .iter()
            .any(|(_, len)| longest.is_some_and(|longest| *len > longest))
        {
            return Err(Status::IoErr);
        }
        let bytes: u64 = pieces.iter().map(|(_, len)| len).sum();
        let at = u128::from(sector) * 512;
        if !bytes.is_multiple_of(512) || at + u128::from(bytes) > u128::from(DISK) {
            return Err(Status::IoErr);
        }
        Ok((
            small(at),
            u32::try_from(bytes).expect("less than the disk holds"),
        ))
    }

    fn ranges(
        &mut self,
        from: impl Iterator<Item = u64>,
        discard: bool,
    ) -> Result<Vec<Work>, Status> {
        if self.setup.read_only {
            return Err(Status::IoErr);
        }
        if !self.setup.discard {
            return Err(Status::Unsupp);
        }
        let from: Vec<u64> = from.collect();
        let mut work = Vec::new();
        let (whole, rest) = from.as_chunks::<16>();
        for place in whole {
            let bytes: [u8; 16] = self.load(*place).expect("sixteen bytes");
            let all = u128::from_le_bytes(bytes);
            let (sector, sectors, flags) = (
                all & u128::from(u64::MAX),
                all >> 64 & 0xffff_ffff,
                all >> 96,
            );
            if flags > 1 || (flags == 1 && discard) {
                return Err(Status::Unsupp);
            }
            let (at, len) = (sector * 512, sectors * 512);
            let most = SingleQueue::MAX_RANGES as usize;
            if work.len() == most || len > u128::from(RANGE) || at + len > u128::from(DISK) {
                return Err(Status::IoErr);
            }
            let (at, len) = (small(at), small(len));
            let unmap = flags == 1;
            work.push(if discard {
                Work::Discard { at, len }
            } else {
                Work::Zero { at, len, unmap }
            });
        }
        if work.is_empty() || !rest.is_empty() {
            return Err(Status::IoErr);
        }
        Ok(work)
    }

    fn carry_out(&mut self, work: &Work) {
        match work {
            Work::Read { at, into } => {
                for (at, to) in (*at..).zip(into) {
                    *self.byte(*to) = self.disk[at];
                }
            }
            Work::Write { at, from } => {
                for (at, from) in (*at..).zip(from) {
                    self.disk[at] = *self.byte(*from);
                    self.allocated[at / 512] = true;
                }
            }
            Work::Zero { at, len, unmap } => {
                for at in *at..*at + *len {
                    self.disk[at] = 0;
                    self.allocated[at / 512] = !unmap;
                }
            }
            Work::Discard { at, len } => {
                for at in *at..*at + *len {
                    self.disk[at] = DISCARDED;
                    self.allocated[at / 512] = false;
                }
            }
            Work::Flush => {}
        }
    }

    /// The chain that starts at `head`.
    fn walk(&mut self, ring: &Ring, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain::default();
        let size = self.size();
        let mut next = head;
        for _ in 0..size {
            if next >= size {
                return Err(Broken);
            }
            let descriptor = ring.descriptor(next).into();
            match chain.add(descriptor)? {
                More::No => return Ok(chain),
                More::At(at) => next = at,
                More::Table { at, bytes, last } => {
                    if !self.setup.indirect || !last {
                        return Err(Broken);
                    }
                    self.walk_table(&mut chain, at, bytes)?;
                    return Ok(chain);
                }
            }
        }
        Err(Broken)
    }

    fn walk_table(&mut self, chain: &mut Chain, at: u64, bytes: u32) -> Result<(), Broken> {
        let len = bytes / 16;
        if !bytes.is_multiple_of(16) || len == 0 || len > MAX_CHAIN || !is_memory(at, bytes) {
            return Err(Broken);
        }
        if at < SEAM && SEAM - at < u64::from(bytes) {
            chain.unseen += len.max(2) as usize;
        }
        let mut next = 0;
        for _ in 0..len {
            if u32::from(next) >= len {
                return Err(Broken);
            }
            let from = at + 16 * u64::from(next);
            let descriptor: [u8; 16] = self.load(from..=u64::MAX).expect("it is memory");
            match chain.add(descriptor.into())? {
                More::No => return Ok(()),
                More::At(at) => next = at,
                More::Table { .. } => return Err(Broken),
            }
        }
        Err(Broken)
    }
}

/// A descriptor.
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl From<[u8; 16]> for Descriptor {
    fn from(bytes: [u8; 16]) -> Self {
        let part = |at: usize| {
            let part = bytes[at..at + 4].try_into();
            u32::from_le_bytes(part.expect("four bytes"))
        };
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            address: u64::from(part(0)) | u64::from(part(4)) << 32,
            len: part(8),
            flags: half(12),
            next: half(14),
        }
    }
}

/// What follows a descriptor.
enum More {
    No,
    At(u16),
    Table { at: u64, bytes: u32, last: bool },
}

impl Chain {
    fn add(&mut self, descriptor: Descriptor) -> Result<More, Broken> {
        let Descriptor {
            address,
            len,
            flags,
            next,
        } = descriptor;
        let (goes_on, writable, table) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        if table {
            let (at, bytes, last) = (address, len, !goes_on);
            return Ok(More::Table { at, bytes, last });
        }
        self.buffer(address, len, writable)?;
        Ok(if goes_on { More::At(next) } else { More::No })
    }

    fn buffer(&mut self, address: u64, len: u32, writable: bool) -> Result<(), Broken> {
        if !writable && self.has_writable {
            return Err(Broken);
        }
        self.has_writable |= writable;
        if len == 0 {
            self.unseen += 1;
            return Ok(());
        }
        if !is_memory(address, len) {
            return Err(Broken);
        }
        let to = if writable {
            &mut self.writable
        } else {
            &mut self.readable
        };
        let len = u64::from(len);
        if address < SEAM && SEAM - address < len {
            to.push((address, SEAM - address));
            to.push((SEAM, len - (SEAM - address)));
            self.cuts += 1;
        } else {
            to.push((address, len));
        }
        Ok(())
    }

    fn take_last_byte(&mut self) -> Option<u64> {
        let (address, len) = self.writable.pop()?;
        if len > 1 {
            self.writable.push((address, len - 1));
        }
        Some(address + (len - 1))
    }
}

/// Memory has two stretches without a gap, so the ends tell.
fn is_memory(address: u64, len: u32) -> bool {
    let Some(last) = address.checked_add(u64::from(len) - 1) else {
        return false;
    };
    let ends = place(address).zip(place(last));
    ends.is_some_and(|(from, to)| (to - from) as u64 == u64::from(len) - 1)
}

fn addresses(pieces: &[Piece]) -> impl Iterator<Item = u64> {
    pieces.iter().flat_map(|(at, len)| *at..at + len)
}

fn without_front(pieces: &[Piece], mut bytes: u64) -> Vec<Piece> {
    let mut rest = Vec::new();
    for (at, len) in pieces {
        let gone = bytes.min(*len);
        bytes -= gone;
        if gone < *len {
            rest.push((at + gone, len - gone));
        }
    }
    rest
}

fn small(number: u128) -> usize {
    usize::try_from(number).expect("inside the disk")
}
