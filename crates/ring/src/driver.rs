//! The driver's end of a virtqueue: stages chains, takes used elements.
//!
//! It keeps its own copy of everything it wrote and never reads the shared memory back: a device
//! that scribbles over the descriptors confuses only itself.

use pollux_memory::Span;

use crate::areas::Areas;
use crate::descriptor::{Descriptor, DescriptorFlags};
use crate::fault::PeerFault;
use crate::index::RingIndex;
use crate::lane::{Armed, Notify, Suppression};
use crate::reader::{IndexView, Reader};
use crate::wire::{Head, UsedElem};
use crate::writer::Writer;

/// A buffer as the device is to find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Its address in the memory shared with the device.
    pub address: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// Memory for indirect tables: one for each head, of `entries` descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The memory, `16 · entries` bytes for each entry of the ring.
    pub span: Span,
    /// Where the device finds it.
    pub address: u64,
    /// How many descriptors each table holds.
    pub entries: u16,
}

/// A chain that cannot be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too few descriptors are free: take completions first.
    #[error("the ring is full")]
    Full,
    /// No ring of this size can hold it.
    #[error("a chain of {buffers} buffers; at most {most} fit")]
    TooLong {
        /// How many buffers it has.
        buffers: usize,
        /// How many may be in one chain.
        most: usize,
    },
    /// A chain needs at least one buffer.
    #[error("a chain without buffers")]
    Empty,
}

/// A chain the device has handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedChain {
    /// What [`DriverEnd::stage`] was given.
    pub token: u64,
    /// How many bytes the device wrote, at most what the chain has room for.
    pub written: u32,
}

/// What the driver remembers of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The next descriptor of the chain, or of the free list.
    link: u16,
    /// Of a head in flight: how many descriptors its chain occupies. 0: not a head in flight.
    length: u16,
    /// Of a head in flight: the bytes its writable part holds.
    room: u64,
    /// Of a head in flight: its owner's token.
    token: u64,
    /// The caller's table that the descriptor points to; without bytes: none.
    table: Buffer,
}

/// The driver's end.
#[derive(Debug)]
pub struct DriverEnd {
    available: Writer<Head>,
    used: Reader<UsedElem>,
    descriptors: Span,
    tables: Option<Tables>,
    slots: Vec<Slot>,
    free: u16,
    free_count: u16,
}

impl DriverEnd {
    /// The end of a fresh ring. With `tables`, chains of several buffers take one descriptor each.
    ///
    /// # Panics
    ///
    /// When the tables' memory is too short for their number.
    #[must_use]
    pub fn new(areas: &Areas, suppression: Suppression, tables: Option<Tables>) -> Self {
        let size = areas.size();
        if let Some(tables) = &tables {
            let needed = usize::from(size) * usize::from(tables.entries) * Descriptor::SIZE;
            assert!(
                tables.span.len() >= needed,
                "the indirect tables take {needed} bytes"
            );
        }
        let slots = (0..size)
            .map(|at| Slot {
                link: (at + 1) % size,
                ..Slot::default()
            })
            .collect();
        Self {
            available: Writer::new(areas.available(suppression), RingIndex(0)),
            used: Reader::new(areas.used(suppression), RingIndex(0)),
            descriptors: areas.descriptors,
            tables,
            slots,
            free: 0,
            free_count: size,
        }
    }

    /// How many descriptors are free.
    #[must_use]
    pub fn room(&self) -> u16 {
        self.free_count
    }

    /// The head of the chain that is staged next, if there is room for one of so many descriptors: a
    /// driver that keeps memory for each head (a header, a status byte) knows by it which to use.
    #[inline]
    #[must_use]
    pub fn next_head(&self, descriptors: usize) -> Option<u16> {
        (usize::from(self.free_count) >= descriptors).then_some(self.free)
    }

    /// Stages a chain of buffers, the device-readable ones first. `token` comes back when it is done.
    ///
    /// # Errors
    ///
    /// When the ring is full, or the chain can never fit.
    pub fn stage(
        &mut self,
        readable: &[Buffer],
        writable: &[Buffer],
        token: u64,
    ) -> Result<(), Refused> {
        let count = readable.len() + writable.len();
        let size = self.slots.len();
        let entries = self.tables.map_or(0, |tables| usize::from(tables.entries));
        let most = size.max(entries);
        let table = self.tables.filter(|_| count > 1 && count <= entries);
        let needed = if table.is_some() {
            1
        } else {
            u16::try_from(count.min(size)).expect("a ring's size is a u16")
        };
        match count {
            0 => return Err(Refused::Empty),
            _ if count > most => {
                return Err(Refused::TooLong {
                    buffers: count,
                    most,
                });
            }
            _ if needed > self.free_count => return Err(Refused::Full),
            _ => {}
        }
        let head = self.free;
        let buffers = readable.iter().map(|buffer| (buffer, 0)).chain(
            writable
                .iter()
                .map(|buffer| (buffer, DescriptorFlags::WRITE)),
        );
        if let Some(tables) = table {
            self.free = self.slots[usize::from(head)].link;
            self.slots[usize::from(head)].table = Buffer::default();
            self.write_table(&tables, head, count, buffers);
        } else {
            for (at, (buffer, flags)) in buffers.enumerate() {
                let here = self.free;
                let link = self.slots[usize::from(here)].link;
                let more = if at + 1 < count {
                    DescriptorFlags::NEXT
                } else {
                    0
                };
                self.slots[usize::from(here)].table = Buffer::default();
                self.write(here, *buffer, flags | more, link);
                self.free = link;
            }
        }
        self.free_count -= needed;
        let room = writable.iter().map(|buffer| u64::from(buffer.len)).sum();
        let slot = &mut self.slots[usize::from(head)];
        (slot.length, slot.room, slot.token) = (needed, room, token);
        self.available.stage(Head(head));
        Ok(())
    }

    /// Stages a chain of one descriptor: an indirect table in memory of the caller's, which has filled it
    /// and leaves it in place until the chain is back. `room` is how many bytes its writable part holds.
    ///
    /// For callers that keep a table for each head ([`DriverEnd::next_head`]) with most of it filled
    /// beforehand: while a head's table stays where it is, its descriptor is not written again.
    ///
    /// # Errors
    ///
    /// When the ring is full.
    #[inline]
    pub fn stage_table(&mut self, table: Buffer, room: u64, token: u64) -> Result<(), Refused> {
        let head = self.free;
        if self.free_count == 0 {
            return Err(Refused::Full);
        }
        let slot = &mut self.slots[usize::from(head)];
        self.free = slot.link;
        self.free_count -= 1;
        (slot.length, slot.room, slot.token) = (1, room, token);
        if slot.table != table {
            slot.table = table;
            self.write(head, table, DescriptorFlags::INDIRECT, 0);
        }
        self.available.stage(Head(head));
        Ok(())
    }

    fn write(&self, at: u16, Buffer { address, len }: Buffer, flags: u16, next: u16) {
        let descriptor = Descriptor {
            address,
            len,
            flags: DescriptorFlags(flags),
            next,
        };
        self.descriptors
            .store(usize::from(at) * Descriptor::SIZE, descriptor.to_bytes());
    }

    fn write_table<'a>(
        &self,
        tables: &Tables,
        head: u16,
        count: usize,
        buffers: impl Iterator<Item = (&'a Buffer, u16)>,
    ) {
        let start = usize::from(head) * usize::from(tables.entries) * Descriptor::SIZE;
        for (next, (Buffer { address, len }, flags)) in (1u16..).zip(buffers) {
            let more = if usize::from(next) < count {
                DescriptorFlags::NEXT
            } else {
                0
            };
            let descriptor = Descriptor {
                address: *address,
                len: *len,
                flags: DescriptorFlags(flags | more),
                next,
            };
            tables.span.store(
                start + usize::from(next - 1) * Descriptor::SIZE,
                descriptor.to_bytes(),
            );
        }
        let bytes =
            u32::try_from(count * Descriptor::SIZE).expect("a table has at most 2^16 descriptors");
        let table = Buffer {
            address: tables.address + start as u64,
            len: bytes,
        };
        self.write(head, table, DescriptorFlags::INDIRECT, 0);
    }

    /// Shows what is staged to a device that is awake; whether one that sleeps must be kicked is for
    /// [`DriverEnd::publish`] to tell, later, for all that was shown.
    #[inline]
    pub fn show(&mut self) {
        self.available.show();
    }

    /// Shows the device what is staged; tells whether it must be kicked.
    #[inline]
    pub fn publish(&mut self) -> Notify {
        self.available.publish()
    }

    /// Looks at the used ring's index, once: how many completions can be taken.
    ///
    /// # Errors
    ///
    /// When the device broke the ring.
    #[inline]
    pub fn look(&mut self) -> Result<u16, PeerFault> {
        self.used.look()
    }

    /// Takes the next of the completions that the last [`DriverEnd::look`] saw.
    ///
    /// # Errors
    ///
    /// When the device handed back what is not in flight, or claims to have written more than there
    /// is room for.
    #[inline]
    pub fn take(&mut self) -> Result<Option<UsedChain>, PeerFault> {
        let Some(UsedElem { id, len: written }) = self.used.take() else {
            return Ok(None);
        };
        let head = u16::try_from(id).map_err(|_| not_in_flight(id))?;
        let slot = self.slots.get_mut(usize::from(head));
        let Some(slot) = slot.filter(|slot| slot.length > 0) else {
            return Err(not_in_flight(id));
        };
        let Slot { room, token, .. } = *slot;
        if u64::from(written) > room {
            return Err(overrun(id, written, room));
        }
        let length = std::mem::take(&mut slot.length);
        let mut last = slot;
        for _ in 1..length {
            let next = usize::from(last.link);
            last = &mut self.slots[next];
        }
        last.link = std::mem::replace(&mut self.free, head);
        self.free_count += length;
        Ok(Some(UsedChain { token, written }))
    }

    /// Asks for a call by the next completion, then polls once more.
    ///
    /// # Errors
    ///
    /// As for [`DriverEnd::look`].
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        self.used.arm()
    }

    /// Asks for no calls: this end polls.
    #[inline]
    pub fn disarm(&mut self) {
        self.used.disarm();
    }

    /// Will the next completion cause a call? See [`Reader::is_armed`].
    #[inline]
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.used.is_armed()
    }

    /// The index of the used element to be taken next.
    #[inline]
    #[must_use]
    pub fn next(&self) -> RingIndex {
        self.used.next()
    }

    /// A view of the used ring's index for threads that do not own this end. It is one more user of the ring's
    /// memory, which stays mapped as long.
    #[must_use]
    pub fn index_view(&self) -> IndexView<UsedElem> {
        self.used.index_view()
    }
}

// Out of line: what a fault is made of would be put together for each completion.

#[cold]
fn not_in_flight(id: u32) -> PeerFault {
    PeerFault::NotInFlight { id }
}

#[cold]
fn overrun(id: u32, written: u32, room: u64) -> PeerFault {
    PeerFault::Overrun { id, written, room }
}
