//! The guest's memory, and what it writes there.
//!
//! ```text
//!  0x0000  ring of queue 0: descriptors, 0x1000 available, 0x2000 used
//!  0x4000  ring of queue 1
//!  0x8000  data
//! ```

use std::fs::File;

use arbitrary::Arbitrary;
use pollux_memory::Region;
use pollux_ring::{DescriptorFlags, descriptor};
use rustix::fs::{MemfdFlags, memfd_create};

/// Bytes of memory.
pub const BYTES: u64 = 0x1_0000;
/// Where descriptors see them.
pub const GUEST: u64 = 0x10_0000;
/// Where messages about rings see them.
pub const USER: u64 = 0x7f00_0000_0000;
/// Entries of a ring that is brought up.
pub const SIZE: u16 = 16;

const DATA: u16 = 0x8000;

/// Where the parts of a queue's ring lie in memory.
pub fn ring(queue: bool) -> [u64; 3] {
    let start = if queue { 0x4000 } else { 0 };
    [start, start + 0x1000, start + 0x2000]
}

pub struct Memory {
    file: File,
    here: Region,
}

impl Memory {
    pub fn new() -> Self {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd can be made");
        let file = File::from(file);
        file.set_len(BYTES).expect("a memfd can grow");
        let again = file.try_clone().expect("a descriptor can be duplicated");
        let here = Region::map(again, 0, 0, 0, BYTES).expect("a memfd can be mapped");
        Self { file, here }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn clear(&self) {
        self.here.write(0, &vec![0; self.here.addresses().len()]);
    }

    /// Writes what fits of `bytes` to `at`.
    fn put(&self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at % BYTES).expect("memory is small");
        let room = self.here.addresses().len() - at;
        self.here.write(at, &bytes[..bytes.len().min(room)]);
    }

    fn available_idx(&self, queue: bool) -> u16 {
        let at = usize::try_from(ring(queue)[1] + 2).expect("memory is small");
        let mut idx = [0; 2];
        self.here.read(at, &mut idx);
        u16::from_le_bytes(idx)
    }

    fn set_available_idx(&self, queue: bool, idx: u16) {
        self.put(ring(queue)[1] + 2, &idx.to_le_bytes());
    }

    fn offer(&self, queue: bool, head: u16) {
        let next = self.available_idx(queue);
        let entry = ring(queue)[1] + 4 + 2 * u64::from(next % SIZE);
        self.put(entry, &head.to_le_bytes());
        self.set_available_idx(queue, next.wrapping_add(1));
    }

    fn describe(&self, queue: bool, at: u8, bytes: [u8; 16]) {
        self.put(ring(queue)[0] + 16 * u64::from(at), &bytes);
    }
}

/// Something the guest writes.
#[derive(Arbitrary, Debug)]
pub enum Write {
    Descriptor {
        queue: bool,
        at: u8,
        address: Address,
        len: Len,
        flags: u8,
        next: u8,
    },
    /// A request in the usual layout, made available.
    Request {
        queue: bool,
        head: u8,
        kind: u8,
        sector: u8,
        data: u16,
        len: Len,
    },
    Offer {
        queue: bool,
        head: u16,
    },
    Ahead {
        queue: bool,
        by: u16,
    },
    Bytes {
        at: u16,
        bytes: [u8; 8],
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Address {
    Inside(u16),
    Beside(u16),
    End(i8),
    Any(u64),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Len {
    Bytes(u8),
    Sectors(u8),
    Any(u32),
}

impl Address {
    fn get(self) -> u64 {
        match self {
            Self::Inside(at) => GUEST + u64::from(at),
            Self::Beside(at) => GUEST + BYTES + u64::from(at),
            Self::End(by) => (GUEST + BYTES).wrapping_add_signed(i64::from(by)),
            Self::Any(address) => address,
        }
    }
}

impl Len {
    fn get(self) -> u32 {
        match self {
            Self::Bytes(len) => u32::from(len),
            Self::Sectors(count) => 512 * u32::from(count % 20),
            Self::Any(len) => len,
        }
    }
}

impl Write {
    pub fn apply(&self, memory: &Memory) {
        match *self {
            Self::Descriptor {
                queue,
                at,
                address,
                len,
                flags,
                next,
            } => {
                let flags = DescriptorFlags(u16::from(flags));
                let bytes = descriptor(address.get(), len.get(), flags, u16::from(next));
                memory.describe(queue, at, bytes);
            }
            Self::Request {
                queue,
                head,
                kind,
                sector,
                data,
                len,
            } => {
                let header = u128::from(kind) | u128::from(sector) << 64;
                let at = DATA + 16 * u16::from(head);
                memory.put(u64::from(at), &header.to_le_bytes());
                let write = if kind == 1 { 0 } else { 2 };
                let chain = [
                    (GUEST + u64::from(at), 16, 1),
                    (GUEST + u64::from(data), len.get(), 1 | write),
                    (GUEST + u64::from(DATA - 1), 1, 2),
                ];
                let head = head % 16;
                for (number, (address, len, flags)) in (0u8..).zip(chain) {
                    let next = u16::from((head + number + 1) % 16);
                    let bytes = descriptor(address, len, DescriptorFlags(flags), next);
                    memory.describe(queue, (head + number) % 16, bytes);
                }
                memory.offer(queue, u16::from(head));
            }
            Self::Offer { queue, head } => memory.offer(queue, head),
            Self::Ahead { queue, by } => {
                let idx = memory.available_idx(queue).wrapping_add(by);
                memory.set_available_idx(queue, idx);
            }
            Self::Bytes { at, bytes } => memory.put(u64::from(at), &bytes),
        }
    }
}
