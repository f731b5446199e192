//! The disk behind the queue: ends requests at once, or when and how the fuzzer says.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_blk::SECTOR;
use pollux_disk::{
    Armed, Channel, Completion, Durability, Failure, Geometry, Op, Queued, Request, Unmap,
};
use pollux_memory::Memory;

use super::Setup;

/// What a discarded byte reads as: not as a zero, so that the two can be told apart.
pub const DISCARDED: u8 = 0xd1;

/// What the fuzzer holds of the disk.
pub struct Handle(Arc<Mutex<Disk>>);

struct Disk {
    geometry: Geometry,
    slow: bool,
    /// When each write is to be complete.
    durability: Durability,
    memory: Arc<Memory>,
    bytes: Vec<u8>,
    /// Which sectors take up room.
    allocated: Vec<bool>,
    pending: Vec<Request>,
    ended: Vec<Completion>,
}

struct Way(Arc<Mutex<Disk>>);

fn locked(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().expect("a panic ends the run")
}

impl Handle {
    pub fn new(setup: Setup, memory: Arc<Memory>) -> Self {
        let geometry = setup.geometry();
        Self(Arc::new(Mutex::new(Disk {
            geometry,
            slow: setup.slow,
            durability: setup.durability(),
            memory,
            bytes: vec![0; place(geometry.bytes)],
            allocated: vec![false; sector(geometry.bytes)],
            pending: Vec::new(),
            ended: Vec::new(),
        })))
    }

    pub fn channel(&self) -> Box<dyn Channel> {
        Box::new(Way(Arc::clone(&self.0)))
    }

    /// Ends one of the requests that are pending, if there are any.
    pub fn end(&self, which: u8, result: Result<(), Failure>) {
        let mut disk = locked(&self.0);
        if disk.pending.is_empty() {
            return;
        }
        let which = usize::from(which) % disk.pending.len();
        let Request { ticket, op } = disk.pending.remove(which);
        if result.is_ok() {
            disk.carry_out(&op);
        }
        disk.ended.push(Completion { ticket, result });
    }

    pub fn end_all(&self) {
        while self.pending() > 0 {
            self.end(0, Ok(()));
        }
    }

    pub fn pending(&self) -> usize {
        locked(&self.0).pending.len()
    }

    /// Does it hold these bytes, and do these sectors of it take up room?
    pub fn holds(&self, bytes: &[u8], allocated: &[bool]) -> bool {
        let disk = locked(&self.0);
        disk.bytes == bytes && disk.allocated == allocated
    }
}

impl Disk {
    /// Panics where the device asks for what it must not ask for.
    fn check(&self, op: &Op) {
        self.geometry
            .check(op)
            .expect("a request that the disk can do");
        if let Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } = op {
            assert_eq!(*durability, self.durability, "when a write is complete");
        }
        let (Op::Read { into: spans, .. } | Op::Write { from: spans, .. }) = op else {
            return;
        };
        for span in spans.iter() {
            assert!(!span.is_empty(), "an empty span");
            let inside = |all: Range<usize>| {
                let from = span.as_ptr().addr();
                all.start <= from && from + span.len() <= all.end
            };
            let mut regions = self.memory.regions().iter();
            assert!(
                regions.any(|region| inside(region.addresses())),
                "a span outside the memory"
            );
        }
    }

    fn carry_out(&mut self, op: &Op) {
        match *op {
            Op::Read { at, into } => {
                let mut at = place(at);
                for span in into.iter() {
                    span.write(&self.bytes[at..at + span.len()]);
                    at += span.len();
                }
            }
            Op::Write { at, from, .. } => {
                self.allocate(at, from.bytes(), true);
                let mut at = place(at);
                for span in from.iter() {
                    span.read(&mut self.bytes[at..at + span.len()]);
                    at += span.len();
                }
            }
            Op::Flush => {}
            Op::Discard { at, len } => {
                self.allocate(at, len, false);
                self.bytes[place(at)..][..place(len)].fill(DISCARDED);
            }
            Op::WriteZeroes { at, len, unmap, .. } => {
                self.allocate(at, len, unmap == Unmap::Forbidden);
                self.bytes[place(at)..][..place(len)].fill(0);
            }
        }
    }

    fn allocate(&mut self, at: u64, len: u64, allocated: bool) {
        self.allocated[sector(at)..sector(at + len)].fill(allocated);
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("a small disk")
}

fn sector(at: u64) -> usize {
    place(at / SECTOR)
}

// SAFETY: a request is carried out before it has ended, and forgotten then.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for Way {
    fn queue(&mut self, request: Request) -> Queued {
        let mut disk = locked(&self.0);
        disk.check(&request.op);
        if disk.slow {
            let twin = |other: &Request| other.ticket == request.ticket;
            let ranges = |op: &Op| matches!(op, Op::Discard { .. } | Op::WriteZeroes { .. });
            assert!(
                ranges(&request.op) || !disk.pending.iter().any(twin),
                "a ticket that is in flight"
            );
            disk.pending.push(request);
            return Queued::Pending;
        }
        disk.carry_out(&request.op);
        Queued::Done(Ok(()))
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        for completion in std::mem::take(&mut locked(&self.0).ended) {
            done(completion);
        }
    }

    fn arm(&mut self) -> Armed {
        if locked(&self.0).ended.is_empty() {
            Armed::Idle
        } else {
            Armed::Pending
        }
    }
}
