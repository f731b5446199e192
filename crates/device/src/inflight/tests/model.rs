//! A crash after every single store, and what the next owner makes of what it finds.
//!
//! The driver's end of the world is a list: the chains it has offered, and which of them it has seen come
//! back. Everything that happens (a chain is offered, a word of the record is stored, the used index is
//! stored) is an event; any first part of the events is a crash. However that leaves the record, the next
//! owner must do exactly what the driver has not seen come back, in the order in which it was offered: then
//! nothing is lost, nothing comes back twice, and nothing is done again after it was seen.

use std::cell::RefCell;
use std::rc::Rc;

use pollux_memory::Word;
use pollux_ring::{Head, Notify, RingIndex};
use proptest::prelude::*;

use super::super::RecordError;
use super::super::record::{Record, Shape, Store, area_bytes};

/// Of the ring; the record has room for more.
const SIZE: u16 = 8;
const SHAPE: Shape = Shape {
    queue: 0,
    entries: SIZE + 3,
    size: SIZE,
};
/// Where the ring's indices start: they wrap soon.
const START: u16 = 0xfff9;

/// What can be seen from outside the process that crashes.
#[derive(Clone, Debug, PartialEq)]
struct World {
    record: Vec<u8>,
    used: RingIndex,
    /// The head of each chain, in the order of the available ring.
    offered: Vec<Head>,
    /// Which of them have come back.
    seen: Vec<bool>,
}

#[derive(Clone, Debug)]
enum Event {
    Offer(Head),
    Store(usize, Vec<u8>),
    Show(Vec<usize>),
}

impl World {
    fn new() -> Self {
        Self {
            record: vec![0; area_bytes(SHAPE.entries)],
            used: RingIndex(START),
            offered: vec![],
            seen: vec![],
        }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Offer(head) => {
                self.offered.push(*head);
                self.seen.push(false);
            }
            Event::Store(at, bytes) => self.record[*at..at + bytes.len()].copy_from_slice(bytes),
            Event::Show(chains) => {
                for chain in chains {
                    assert!(!self.seen[*chain], "chain {chain} came back twice");
                    self.seen[*chain] = true;
                }
                self.used = self.used.plus(u16::try_from(chains.len()).unwrap());
            }
        }
    }

    /// The chain that starts at `head` now.
    fn chain_at(&self, head: Head) -> Option<usize> {
        let starts = |chain: &usize| self.offered[*chain] == head && !self.seen[*chain];
        (0..self.offered.len()).find(starts)
    }

    fn unseen(&self) -> Vec<usize> {
        let unseen = |chain: &usize| !self.seen[*chain];
        (0..self.offered.len()).filter(unseen).collect()
    }
}

/// The world, and what has happened in it since the last crash.
#[derive(Clone, Debug)]
struct Stage(Rc<RefCell<(World, Vec<Event>)>>);

impl Stage {
    fn new(world: World) -> Self {
        Self(Rc::new(RefCell::new((world, vec![]))))
    }

    fn happens(&self, event: Event) {
        let (world, events) = &mut *self.0.borrow_mut();
        world.apply(&event);
        events.push(event);
    }

    fn world(&self) -> World {
        self.0.borrow().0.clone()
    }

    fn events(&self) -> Vec<Event> {
        self.0.borrow().1.clone()
    }
}

impl Store for Stage {
    fn store<W: Word>(&self, at: usize, word: W) {
        // As memory would have it, by the real store.
        let mut memory = [0u64];
        let base = std::ptr::NonNull::from(&mut memory).cast();
        // SAFETY: `memory` outlives the span and is not touched while it is in use.
        let span = unsafe { pollux_memory::Span::new(base, 8) };
        span.release(0, word);
        let mut bytes = vec![0; size_of::<W>()];
        span.slice(0, bytes.len()).unwrap().read(&mut bytes);
        self.happens(Event::Store(at, bytes));
    }

    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        let (world, _) = &*self.0.borrow();
        world.record[at..at + N].try_into().unwrap()
    }
}

/// A process that serves the queue.
struct Device {
    stage: Stage,
    record: Record<Stage>,
    /// Taken and not staged.
    in_flight: Vec<usize>,
    staged: Vec<usize>,
    next: usize,
}

impl Device {
    /// Starts in `world`, and does first what it finds. The frontend says that all that was handed back
    /// was taken, and no more.
    fn start(world: World) -> Result<Self, RecordError> {
        let (used, offered) = (world.used, world.offered.len());
        let stage = Stage::new(world);
        let (mut record, next) = Record::open(stage.clone(), SHAPE, used)?;
        let next = usize::from(next.unwrap_or(used).since(RingIndex(START)));
        assert!(next <= offered, "it goes on with what was never offered");
        let mut in_flight = vec![];
        while let Some(head) = record.again() {
            let chain = stage.world().chain_at(head);
            in_flight.push(chain.expect("what is done again has not been seen to end"));
        }
        Ok(Self {
            stage,
            record,
            in_flight,
            staged: vec![],
            next,
        })
    }

    /// What it is to do, in this order.
    fn todo(&self) -> Vec<usize> {
        let offered = self.stage.world().offered.len();
        let in_flight = self.in_flight.iter().copied();
        in_flight.chain(self.next..offered).collect()
    }

    fn offer(&self, pick: usize) {
        let world = self.stage.world();
        let free = |head: &Head| world.chain_at(*head).is_none();
        let free: Vec<_> = (0..SIZE).map(Head).filter(free).collect();
        if !free.is_empty() {
            self.stage.happens(Event::Offer(free[pick % free.len()]));
        }
    }

    fn take(&mut self) {
        let head = self.stage.world().offered.get(self.next).copied();
        if let Some(head) = head {
            self.record.taken(head);
            self.in_flight.push(self.next);
            self.next += 1;
        }
    }

    fn finish(&mut self, pick: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let chain = self.in_flight.remove(pick % self.in_flight.len());
        self.record.staged(self.stage.world().offered[chain]);
        self.staged.push(chain);
    }

    fn publish(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        if staged.is_empty() {
            return;
        }
        let _ = self.record.publish(|| {
            self.stage.happens(Event::Show(staged));
            (Notify::Suppressed, Some(self.stage.world().used))
        });
    }
}

/// Checks a crash after each of `events`, the first of which happen in `world`, and each crash of the
/// recovery from that. Returns what is left after `last` of them.
fn crash_anywhere(world: &World, events: &[Event], last: usize) -> World {
    let (mut world, mut chosen) = (world.clone(), None);
    for so_many in 0..=events.len() {
        if so_many > 0 {
            world.apply(&events[so_many - 1]);
        }
        let expected = world.unseen();
        let next = Device::start(world.clone()).unwrap();
        assert_eq!(next.todo(), expected, "after {so_many} of {events:?}");
        let mut half_recovered = world.clone();
        for event in next.stage.events() {
            half_recovered.apply(&event);
            let after = Device::start(half_recovered.clone()).unwrap();
            assert_eq!(after.todo(), expected, "{so_many} of {events:?}, {event:?}");
        }
        if so_many == last {
            chosen = Some(world.clone());
        }
    }
    chosen.expect("the last one is one of them")
}

#[derive(Clone, Debug)]
enum Step {
    Offer(usize),
    Take,
    Finish(usize),
    Publish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<usize>().prop_map(Step::Offer),
        4 => Just(Step::Take),
        3 => any::<usize>().prop_map(Step::Finish),
        2 => Just(Step::Publish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whenever_it_crashes_the_next_one_does_exactly_what_is_missing(
        lives in prop::collection::vec(
            (prop::collection::vec(step(), 0..40), any::<prop::sample::Index>()),
            1..6,
        ),
    ) {
        let mut world = World::new();
        for (steps, crash) in lives {
            let mut device = Device::start(world.clone()).unwrap();
            for step in steps {
                match step {
                    Step::Offer(pick) => device.offer(pick),
                    Step::Take => device.take(),
                    Step::Finish(pick) => device.finish(pick),
                    Step::Publish => device.publish(),
                }
            }
            let events = device.stage.events();
            let last = crash.index(events.len() + 1);
            world = crash_anywhere(&world, &events, last);
        }
    }

    #[test]
    fn whatever_a_record_holds_the_owner_stays_within_its_ring(
        record in prop::collection::vec(any::<u8>(), area_bytes(SHAPE.entries)),
        honest in any::<bool>(),
        used in any::<u16>(),
    ) {
        let mut record = record;
        if honest {
            record[..8].fill(0);
            record[8..10].copy_from_slice(&1u16.to_ne_bytes());
            record[10..12].copy_from_slice(&SHAPE.entries.to_ne_bytes());
            record.iter_mut().skip(16).step_by(16).for_each(|flag| *flag &= 1);
            record.iter_mut().skip(16 * (1 + usize::from(SIZE))).step_by(16).for_each(|flag| *flag = 0);
        }
        let stage = Stage::new(World { record, ..World::new() });
        let opened = Record::open(stage, SHAPE, RingIndex(used));
        prop_assert_eq!(opened.is_ok(), honest);
        let Ok((mut record, next)) = opened else { return Ok(()) };
        let left = u16::try_from(record.left()).unwrap();
        prop_assert_eq!(next, Some(RingIndex(used).plus(left)));
        let mut heads = vec![];
        while let Some(head) = record.again() {
            prop_assert!(head.0 < SIZE && !heads.contains(&head));
            heads.push(head);
        }
    }
}
