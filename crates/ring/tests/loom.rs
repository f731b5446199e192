//! Nobody sleeps through an entry: loom runs the real `Writer` and `Reader` in every interleaving, and
//! with every value that the memory model lets a load return.
//!
//! `make loom` runs this, and then once with either full fence removed (`--cfg without_fence=…`),
//! which must fail: the proof bites.
#![cfg(loom)]

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

/// `batches` of entries go through a lane whose index starts at `start`; the reader sleeps whenever
/// arming says that it may.
fn nobody_sleeps_through<E: Fresh + Send + 'static>(
    start: u16,
    batches: &'static [u16],
    suppression: Suppression,
) {
    loom::model(move || {
        let ring = Ring::<E>::new(start);
        let event = Arc::new(Event::default());
        let total: u16 = batches.iter().sum();

        let theirs = (Arc::clone(&ring), Arc::clone(&event));
        let writing = thread::spawn(move || {
            let (ring, event) = theirs;
            let mut writer = Writer::new(ring.lane(suppression), RingIndex(start));
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
        });

        let mut reader = Reader::<E>::new(ring.lane(suppression), RingIndex(start));
        let mut expected = 0;
        while expected < total {
            while let Some(entry) = reader.take() {
                assert_eq!(
                    entry.number(),
                    expected,
                    "an entry is published before its index"
                );
                expected += 1;
            }
            if expected == total {
                break;
            }
            match reader.arm().unwrap() {
                Armed::Pending => reader.disarm(),
                Armed::Idle => {
                    event.sleep();
                    reader.disarm();
                    reader.look().unwrap();
                }
            }
        }
        writing.join().unwrap();
    });
}

#[test]
fn available_lane_by_flags() {
    nobody_sleeps_through::<Head>(0, &[1, 1], Suppression::Flags);
}

#[test]
fn available_lane_by_event_idx_across_the_wrap() {
    nobody_sleeps_through::<Head>(u16::MAX, &[1, 1], Suppression::EventIdx);
}

#[test]
fn used_lane_by_flags_with_several_outstanding() {
    nobody_sleeps_through::<UsedElem>(0, &[2, 1], Suppression::Flags);
}

#[test]
fn used_lane_by_event_idx_with_several_outstanding() {
    nobody_sleeps_through::<UsedElem>(u16::MAX - 1, &[2, 1], Suppression::EventIdx);
}
