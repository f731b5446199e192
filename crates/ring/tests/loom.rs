//! Nobody sleeps through an entry: loom runs the real `Writer` and `Reader` in every interleaving, and
//! with every value that the memory model lets a load return.
//!
//! `make loom` runs this (`loom.sh`), and once more with either full fence removed (`WITHOUT_FENCE=…`):
//! each of these tests must end in a deadlock.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::ptr::NonNull;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU16, AtomicU32};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use pollux_ring::{
    Armed, Entry, Head, Lane, Notify, Reader, RingIndex, Suppression, UsedElem, Words, Writer,
};

const SIZE: usize = 4;

/// The shared words of one lane, in loom's atomics.
struct Ring<E: Entry> {
    entries: [E::Slot; SIZE],
    idx: AtomicU16,
    flags: AtomicU16,
    event: AtomicU16,
}

trait Fresh: Entry {
    fn slots() -> [Self::Slot; SIZE];
    fn numbered(at: u16) -> Self;
    fn number(self) -> u16;
}

impl Fresh for Head {
    fn slots() -> [AtomicU16; SIZE] {
        std::array::from_fn(|_| AtomicU16::new(0xdead))
    }
    fn numbered(at: u16) -> Self {
        Head(at)
    }
    fn number(self) -> u16 {
        self.0
    }
}

impl Fresh for UsedElem {
    fn slots() -> [[AtomicU32; 2]; SIZE] {
        std::array::from_fn(|_| [AtomicU32::new(0xdead), AtomicU32::new(0xdead)])
    }
    fn numbered(at: u16) -> Self {
        UsedElem {
            id: u32::from(at),
            len: u32::from(at) + 7,
        }
    }
    fn number(self) -> u16 {
        assert_eq!(
            self.len,
            self.id + 7,
            "the two words of an element belong together"
        );
        u16::try_from(self.id).unwrap()
    }
}

impl<E: Fresh> Ring<E> {
    fn new(start: u16) -> Arc<Self> {
        let idx = AtomicU16::new(start);
        Arc::new(Self {
            entries: E::slots(),
            idx,
            flags: AtomicU16::new(0),
            event: AtomicU16::new(0),
        })
    }

    fn lane(&self, suppression: Suppression) -> Lane<E> {
        let words = Words {
            entries: NonNull::from(&self.entries).cast(),
            idx: NonNull::from(&self.idx),
            flags: NonNull::from(&self.flags),
            event: NonNull::from(&self.event),
        };
        // SAFETY: every user of the lane holds the `Arc` for as long as the lane lives.
        unsafe { Lane::new(words, u16::try_from(SIZE).unwrap(), suppression) }
    }
}

/// An eventfd: a sleep ends when it has been signalled, before or after the sleep began.
#[derive(Default)]
struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn signal(&self) {
        *self.signalled.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Loom reports a sleep that nothing ends as a deadlock: a lost wakeup.
    fn sleep(&self) {
        let mut signalled = self.signalled.lock().unwrap();
        while !*signalled {
            signalled = self.changed.wait(signalled).unwrap();
        }
        *signalled = false;
    }
}

/// How a reader goes about it.
#[derive(Clone, Copy)]
enum Habit {
    /// Takes all it sees, then arms.
    Thorough,
    /// Takes one entry between two attempts to sleep: it arms with entries unreaped.
    OneByOne,
    /// Is woken by something else (a completion, a timer) when it first sleeps: it disarms, looks for
    /// itself, and arms once more.
    Restless,
}

/// Takes `total` entries, numbered from 0, off a lane; sleeps whenever arming says that it may.
fn read<E: Fresh>(reader: &mut Reader<E>, total: u16, habit: Habit, event: &Event) {
    let mut expected = 0;
    let mut disturbed = !matches!(habit, Habit::Restless);
    while expected < total {
        while let Some(entry) = reader.take() {
            assert_eq!(
                entry.number(),
                expected,
                "an entry is published before its index"
            );
            expected += 1;
            if matches!(habit, Habit::OneByOne) {
                break;
            }
        }
        if expected == total {
            break;
        }
        if reader.arm().unwrap() == Armed::Idle && std::mem::replace(&mut disturbed, true) {
            event.sleep();
        }
        reader.disarm();
        reader.look().unwrap();
    }
}

/// Publishes `batches` of entries, numbered from 0, and wakes the reader where it wants that.
fn write<E: Fresh>(writer: &mut Writer<E>, batches: &[u16], event: &Event) {
    let mut number = 0;
    for batch in batches {
        for _ in 0..*batch {
            writer.stage(E::numbered(number));
            number += 1;
        }
        if writer.publish() == Notify::Needed {
            event.signal();
        }
    }
}

/// `batches` of entries go through a lane whose index starts at `start`.
fn nobody_sleeps_through<E: Fresh + Send + 'static>(
    start: u16,
    batches: &'static [u16],
    habit: Habit,
    suppression: Suppression,
) {
    let mut model = loom::model::Builder::new();
    // A thorough reader in all interleavings. The others have many more; of these, all with one batch,
    // and with several batches those of at most six interruptions.
    model.preemption_bound = (!matches!(habit, Habit::Thorough) && batches.len() > 1).then_some(6);
    model.check(move || {
        let ring = Ring::<E>::new(start);
        let event = Arc::new(Event::default());

        let theirs = (Arc::clone(&ring), Arc::clone(&event));
        let writing = thread::spawn(move || {
            let (ring, event) = theirs;
            let mut writer = Writer::new(ring.lane(suppression), RingIndex(start));
            write(&mut writer, batches, &event);
        });
        let mut reader = Reader::<E>::new(ring.lane(suppression), RingIndex(start));
        read(&mut reader, batches.iter().sum(), habit, &event);
        writing.join().unwrap();
    });
}

/// A chain goes to a device that may sleep, and comes back to a driver that may.
fn a_round_trip(suppression: Suppression) {
    loom::model(move || {
        let available = Ring::<Head>::new(u16::MAX);
        let used = Ring::<UsedElem>::new(u16::MAX);
        let (kick, call) = (Arc::new(Event::default()), Arc::new(Event::default()));
        let start = RingIndex(u16::MAX);

        let theirs = (Arc::clone(&available), Arc::clone(&used));
        let events = (Arc::clone(&kick), Arc::clone(&call));
        let device = thread::spawn(move || {
            let ((available, used), (kick, call)) = (theirs, events);
            let mut reader = Reader::new(available.lane(suppression), start);
            read(&mut reader, 1, Habit::Thorough, &kick);
            write(&mut Writer::new(used.lane(suppression), start), &[1], &call);
        });
        write(
            &mut Writer::new(available.lane(suppression), start),
            &[1],
            &kick,
        );
        let mut reader = Reader::new(used.lane(suppression), start);
        read(&mut reader, 1, Habit::Thorough, &call);
        device.join().unwrap();
    });
}

#[test]
fn available_lane_by_flags() {
    nobody_sleeps_through::<Head>(0, &[1, 1], Habit::Thorough, Suppression::Flags);
}

#[test]
fn available_lane_by_event_idx_across_the_wrap() {
    nobody_sleeps_through::<Head>(u16::MAX, &[1, 1], Habit::Thorough, Suppression::EventIdx);
}

#[test]
fn used_lane_by_flags_with_several_outstanding() {
    nobody_sleeps_through::<UsedElem>(0, &[2, 1], Habit::Thorough, Suppression::Flags);
}

#[test]
fn used_lane_by_event_idx_with_several_outstanding() {
    let start = u16::MAX - 1;
    nobody_sleeps_through::<UsedElem>(start, &[2, 1], Habit::Thorough, Suppression::EventIdx);
}

#[test]
fn arming_with_entries_unreaped_by_flags() {
    for batches in [&[2][..], &[1, 1]] {
        nobody_sleeps_through::<Head>(0, batches, Habit::OneByOne, Suppression::Flags);
    }
}

#[test]
fn arming_with_entries_unreaped_by_event_idx() {
    for batches in [&[2][..], &[1, 1]] {
        nobody_sleeps_through::<Head>(u16::MAX, batches, Habit::OneByOne, Suppression::EventIdx);
    }
}

#[test]
fn disarming_and_arming_again_by_flags() {
    for batches in [&[2][..], &[1, 1]] {
        nobody_sleeps_through::<Head>(0, batches, Habit::Restless, Suppression::Flags);
    }
}

#[test]
fn disarming_and_arming_again_by_event_idx() {
    for batches in [&[2][..], &[1, 1]] {
        nobody_sleeps_through::<Head>(u16::MAX, batches, Habit::Restless, Suppression::EventIdx);
    }
}

#[test]
fn a_round_trip_by_flags() {
    a_round_trip(Suppression::Flags);
}

#[test]
fn a_round_trip_by_event_idx() {
    a_round_trip(Suppression::EventIdx);
}
