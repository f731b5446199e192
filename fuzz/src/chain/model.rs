//! What a queue has to do, written a second time: slow, plain, byte by byte, from VIRTIO 1.3 (2.7 and
//! 5.2.6) and from what DESIGN.md decides beyond it.

mod walk;
mod work;

use pollux_blk::Status;
use pollux_device::fuzzing::SingleQueue;
use pollux_disk::Failure;

use self::walk::Chain;
use self::work::Work;
use super::memory::{REGION, Ring, place};
use super::{DISK, Setup};

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
}

fn small(number: u128) -> usize {
    usize::try_from(number).expect("inside the disk")
}
