//! A queue of requests, slow and plain.
//!
//! It has [`SLOTS`] slots for requests. Slot `s` owns the descriptors `4 s` to `4 s + 3`, an
//! indirect table, a header, a status byte and a page of data, so that nothing needs a free list.

mod requests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

use super::{GuestMemory, feature};
use crate::process::eventually;

/// Requests of a queue.
pub const SLOTS: u16 = 64;
/// Bytes of data of a request.
pub const PAGE: usize = 4096;

/// Entries of a queue.
pub const QUEUE_ENTRIES: u16 = 4 * SLOTS;
const SIZE: u16 = QUEUE_ENTRIES;
const AVAILABLE: usize = 0x8000;
const USED: usize = 0x1_0000;
/// Where indirect tables lie, [`TABLE_BYTES`] for each slot.
pub(super) const TABLES: usize = 0x1_8000;
const TABLE_BYTES: usize = 128;
const HEADERS: usize = 0x2_0000;
const DATA: usize = 0x4_0000;
pub(super) const QUEUE_BYTES: usize = 0x10_0000;

/// The descriptor is continued.
pub const NEXT: u16 = 1;
/// The device may write what it points to.
pub const WRITE: u16 = 2;
/// It points to a table of descriptors.
pub const INDIRECT: u16 = 4;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `VIRTIO_BLK_S_OK`
    Ok,
    /// `VIRTIO_BLK_S_IOERR`
    IoErr,
    /// `VIRTIO_BLK_S_UNSUPP`
    Unsupported,
    /// Not written yet, or nonsense.
    Other(u8),
}

/// What the device is to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// Every write to guest memory.
    Everything,
    /// Nothing at all.
    Nothing,
}

/// One queue.
pub struct Queue {
    memory: Arc<GuestMemory>,
    pub(super) index: u16,
    event_idx: bool,
    /// Written to after each publication.
    pub kick: OwnedFd,
    /// Written to by the device.
    pub call: OwnedFd,
    /// Where the device starts to take chains.
    pub base: u16,
    /// What [`Driver::start`](super::Driver::start) says is to be logged.
    pub logs: Logs,
    staged: u16,
    seen: u16,
}

/// A piece of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// What the guest calls the first byte.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// [`WRITE`], [`INDIRECT`]; a writer of chains adds [`NEXT`].
    pub flags: u16,
}

impl Queue {
    pub(super) fn new(memory: &Arc<GuestMemory>, index: u16, features: u64) -> io::Result<Self> {
        let event_idx = features & feature::EVENT_IDX != 0;
        let memory = Arc::clone(memory);
        let (kick, call) = (new_eventfd()?, new_eventfd()?);
        Ok(Self {
            memory,
            index,
            event_idx,
            kick,
            call,
            base: 0,
            logs: Logs::Nothing,
            staged: 0,
            seen: 0,
        })
    }

    /// Its number in messages.
    pub fn number(&self) -> u32 {
        u32::from(self.index)
    }

    fn at(&self, offset: usize) -> usize {
        usize::from(self.index) * QUEUE_BYTES + offset
    }

    /// The message that tells where the ring is, and whether changes of its used part are logged.
    pub fn addresses(&self, logs: Logs) -> Vec<u8> {
        let user = |offset| self.memory.user(self.at(offset));
        let (flags, log) = match logs {
            Logs::Everything => (1, self.memory.guest(self.used_ring())),
            Logs::Nothing => (0, 0),
        };
        let addresses = [user(0), user(USED), user(AVAILABLE), log];
        let head = [self.number(), flags];
        let head = head.iter().flat_map(|field| field.to_le_bytes());
        head.chain(addresses.iter().flat_map(|field| field.to_le_bytes()))
            .collect()
    }

    /// Where its available ring lies in the memory, within a page.
    pub fn available_ring(&self) -> usize {
        self.at(AVAILABLE)
    }

    /// Where its used ring lies in the memory, within a page.
    pub fn used_ring(&self) -> usize {
        self.at(USED)
    }

    /// Where the header of `slot` lies in the memory; its status is in the same page.
    pub fn header(&self, slot: u16) -> usize {
        self.at(HEADERS + usize::from(slot) * 32)
    }

    /// Where the data of `slot` lies in the memory.
    pub fn data(&self, slot: u16) -> usize {
        self.at(DATA + usize::from(slot) * PAGE)
    }

    /// Writes a table of descriptors, each continued by the next, to `offset` in the memory, where the
    /// first of them has the number `first`.
    pub fn write_table(&self, offset: usize, parts: &[Part], first: u16) {
        for (number, part) in (0u16..).zip(parts) {
            let more = usize::from(number) + 1 < parts.len();
            let (flags, next) = if more {
                (part.flags | NEXT, first + number + 1)
            } else {
                (part.flags, 0)
            };
            let part = Part { flags, ..*part };
            self.write_descriptor(offset + 16 * usize::from(number), part, next);
        }
    }

    /// Writes one descriptor to `offset` in the memory, as it is.
    pub fn write_descriptor(&self, offset: usize, part: Part, next: u16) {
        let mut descriptor = part.address.to_le_bytes().to_vec();
        descriptor.extend(part.len.to_le_bytes());
        descriptor.extend(part.flags.to_le_bytes());
        descriptor.extend(next.to_le_bytes());
        self.memory.put(offset, &descriptor);
    }

    /// Where descriptor `number` of the ring's own table lies in the memory.
    pub fn descriptor(&self, number: u16) -> usize {
        self.at(16 * usize::from(number))
    }

    /// Where the indirect table of `slot` lies, which has room for eight descriptors; those of later
    /// slots follow without a gap.
    pub fn table(&self, slot: u16) -> usize {
        self.at(TABLES + usize::from(slot) * TABLE_BYTES)
    }

    /// Stages a request of at most four pieces from `slot`.
    pub fn stage(&mut self, slot: u16, parts: &[Part]) {
        assert!(slot < SLOTS && parts.len() <= 4);
        let first = 4 * slot;
        self.write_table(self.descriptor(first), parts, first);
        self.offer(first);
    }

    /// Stages the chain that begins at descriptor `head`, whatever that is.
    pub fn offer(&mut self, head: u16) {
        let entry = self.at(AVAILABLE + 4 + 2 * usize::from(self.staged % SIZE));
        self.memory.put(entry, &head.to_le_bytes());
        self.staged = self.staged.wrapping_add(1);
    }

    /// Moves the available index on without any entries.
    pub fn jump(&mut self, by: u16) {
        self.staged = self.staged.wrapping_add(by);
    }

    /// Shows the device what was staged, without a kick.
    pub fn publish(&self) {
        self.memory
            .word(self.at(AVAILABLE + 2))
            .store(self.staged, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Shows the device what was staged, and kicks it.
    pub fn publish_and_kick(&self) {
        self.publish();
        add_one(&self.kick);
    }

    /// Does the device ask to be kicked for the last request that was published?
    pub fn is_kick_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.at(USED + 4 + 8 * usize::from(SIZE));
            let event = self.memory.word(event).load(Ordering::Acquire);
            event == self.staged.wrapping_sub(1)
        } else {
            self.memory.word(self.at(USED)).load(Ordering::Acquire) & 1 == 0
        }
    }

    /// Requests published so far, which is the next available index.
    pub const fn published(&self) -> u16 {
        self.staged
    }

    /// The used index: requests that the device has given back.
    pub fn used(&self) -> u16 {
        self.memory.word(self.at(USED + 2)).load(Ordering::Acquire)
    }

    /// Asks for a call after the next completion from now on, however often it happened before.
    pub fn ask_for_call(&self) {
        if self.event_idx {
            self.memory
                .word(self.used_event())
                .store(self.used(), Ordering::Release);
        } else {
            self.memory
                .word(self.at(AVAILABLE))
                .store(0, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// Asks for no calls, as far as half the circle of indices allows.
    pub fn ask_for_no_call(&self) {
        if self.event_idx {
            let far = self.used().wrapping_sub(1);
            self.memory
                .word(self.used_event())
                .store(far, Ordering::Release);
        } else {
            self.memory
                .word(self.at(AVAILABLE))
                .store(1, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// Where the device wants the next kick (with `EVENT_IDX`): it has taken all before that, and sleeps.
    pub fn asks_for_kick_after(&self) -> u16 {
        let at = self.at(USED + 4 + 8 * usize::from(SIZE));
        self.memory.word(at).load(Ordering::Acquire)
    }

    fn used_event(&self) -> usize {
        self.at(AVAILABLE + 4 + 2 * usize::from(SIZE))
    }

    /// Waits, looking at the used index, until everything published has come back, and returns the
    /// slots in the order in which it did.
    pub fn finish(&mut self) -> Vec<u16> {
        let missing = || {
            format!(
                "queue {}: {} of {} have come back",
                self.index,
                self.used(),
                self.staged
            )
        };
        eventually(|| self.used() == self.staged, missing);
        self.take()
    }

    /// The slots that have come back since the last look.
    pub fn take(&mut self) -> Vec<u16> {
        let mut slots = vec![];
        let used = self.used();
        while self.seen != used {
            let element = self.at(USED + 4 + 8 * usize::from(self.seen % SIZE));
            let id = self.memory.get(element, 2);
            slots.push(u16::from_le_bytes([id[0], id[1]]) / 4);
            self.seen = self.seen.wrapping_add(1);
        }
        slots
    }

    /// How the request in `slot` ended.
    pub fn status(&self, slot: u16) -> Status {
        match self.memory.get(self.header(slot) + 16, 1)[0] {
            0 => Status::Ok,
            1 => Status::IoErr,
            2 => Status::Unsupported,
            other => Status::Other(other),
        }
    }

    /// The data of `slot`.
    pub fn page(&self, slot: u16) -> Vec<u8> {
        self.memory.get(self.data(slot), PAGE)
    }

    /// How often the device has called since the last time this was asked.
    pub fn calls(&self) -> u64 {
        count(&self.call)
    }
}

/// A new eventfd that is read without waiting.
pub fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// What an eventfd holds, which it gives up.
pub fn count(eventfd: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(eventfd, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
}

/// Kicks, or calls: adds one to an eventfd.
pub fn add_one(eventfd: &OwnedFd) {
    rustix::io::write(eventfd, &1u64.to_ne_bytes()).expect("an eventfd takes a one");
}
