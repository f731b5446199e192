//! A virtqueue in the memory of a peer: two regions that touch, mapped from memfds of their own.

#![allow(dead_code, reason = "each test binary uses its part of this")]

pub mod ops;

use std::fs::File;
use std::sync::Arc;

use pollux_memory::{Memory, Region, Span};
use pollux_ring::{
    Areas, Buffer, Chain, DeviceEnd, DriverEnd, Head, Layout, PeerFault, RingIndex, Suppression,
    Tables,
};

/// Where the peer's memory starts.
pub const BASE: u64 = 0x10_0000;
/// Where the first region ends and the second begins.
pub const SEAM: u64 = BASE + REGION;
/// Where the second region ends.
pub const END: u64 = SEAM + REGION;
const REGION: u64 = 0x8_0000;

/// Flags of a descriptor.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const BOTH: [Suppression; 2] = [Suppression::Flags, Suppression::EventIdx];

/// One ring in that memory.
pub struct Rig {
    pub memory: Memory,
    pub areas: Areas,
    pub size: u16,
    /// The first address that the ring does not use.
    pub free: u64,
    descriptors: u64,
    available: u64,
    used: u64,
    offered: u16,
}

impl Rig {
    pub fn new(size: u16) -> Self {
        // The regions lie apart in the peer's own address space, and wherever the kernel puts them in ours.
        let memory = Memory::default().with(region(BASE, 0x7000_0000)).unwrap();
        let memory = memory.with(region(SEAM, 0x9000_0000)).unwrap();
        let layout = Layout::of(size);
        let descriptors = BASE;
        let available = descriptors + layout.descriptor as u64;
        let used = (available + layout.driver as u64).next_multiple_of(4);
        let areas = Areas::new(
            u32::from(size),
            span(&memory, descriptors, layout.descriptor as u64),
            span(&memory, available, layout.driver as u64),
            span(&memory, used, layout.device as u64),
        );
        Self {
            areas: areas.unwrap(),
            size,
            free: (used + layout.device as u64).next_multiple_of(16),
            memory,
            descriptors,
            available,
            used,
            offered: 0,
        }
    }

    pub fn driver(&self, suppression: Suppression) -> DriverEnd {
        DriverEnd::new(&self.areas, suppression, None)
    }

    /// A driver end with indirect tables of `entries` descriptors, which lie where the ring ends.
    pub fn driver_with_tables(&self, suppression: Suppression, entries: u16) -> DriverEnd {
        let bytes = 16 * u64::from(self.size) * u64::from(entries);
        let tables = Tables {
            span: self.at(self.free, bytes),
            address: self.free,
            entries,
        };
        DriverEnd::new(&self.areas, suppression, Some(tables))
    }

    pub fn device(&self, suppression: Suppression) -> DeviceEnd {
        DeviceEnd::new(&self.areas, RingIndex(0), suppression, true)
    }

    /// The bytes at an address that is known to lie in one region.
    pub fn at(&self, address: u64, len: u64) -> Span {
        span(&self.memory, address, len)
    }

    /// Takes the next chain that `device` has seen.
    pub fn take(
        &self,
        device: &mut DeviceEnd,
        chain: &mut Chain,
    ) -> Result<Option<Head>, PeerFault> {
        // SAFETY: every test keeps its rig until its end.
        unsafe { device.take(&self.memory, chain) }
    }

    /// Writes `bytes` at `address`, across the seam if need be.
    pub fn fill(&self, address: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let fill = |span: Span| {
            let (here, after) = rest.split_at(span.len());
            span.write(here);
            rest = after;
        };
        let len = u32::try_from(bytes.len()).unwrap();
        // SAFETY: no span is kept.
        let all = unsafe { self.memory.spans(address, len, fill) };
        assert!(all, "the test writes inside the memory");
    }

    /// Writes a descriptor of the ring's own table, by hand.
    pub fn describe(&self, at: u16, address: u64, len: u32, flags: u16, next: u16) {
        self.describe_in(self.descriptors, at, address, len, flags, next);
    }

    /// Writes a descriptor of the table at `table`, by hand.
    pub fn describe_in(&self, table: u64, at: u16, address: u64, len: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.fill(table + 16 * u64::from(at), &bytes);
    }

    /// Makes the chain at `head` available, by hand.
    pub fn offer(&mut self, head: u16) {
        let slot = u64::from(self.offered % self.size);
        self.fill(self.available + 4 + 2 * slot, &head.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
        self.set_available_idx(self.offered);
    }

    pub fn set_available_idx(&self, idx: u16) {
        self.fill(self.available + 2, &idx.to_le_bytes());
    }

    pub fn set_used_idx(&self, idx: u16) {
        self.fill(self.used + 2, &idx.to_le_bytes());
    }

    /// Writes used element `at`, by hand.
    pub fn use_up(&self, at: u16, id: u32, len: u32) {
        let slot = u64::from(at % self.size);
        let elem = u64::from(id) | u64::from(len) << 32;
        self.fill(self.used + 4 + 8 * slot, &elem.to_le_bytes());
    }

    pub fn available_flags(&self) -> u16 {
        u16::from_le_bytes(self.at(self.available, 2).load(0))
    }

    pub fn used_flags(&self) -> u16 {
        u16::from_le_bytes(self.at(self.used, 2).load(0))
    }

    /// Walks the one chain that is available.
    pub fn walk(&mut self, head: u16) -> Result<Chain, PeerFault> {
        let next = RingIndex(self.offered);
        self.offer(head);
        let mut device = DeviceEnd::new(&self.areas, next, Suppression::Flags, true);
        assert_eq!(device.look()?, 1);
        let mut chain = Chain::default();
        self.take(&mut device, &mut chain)?;
        Ok(chain)
    }

    /// The spans that a buffer is expected to become.
    pub fn spans(&self, buffers: &[Buffer]) -> Vec<(*mut u8, usize)> {
        let mut spans = Vec::new();
        for Buffer { address, len } in buffers {
            if *len > 0 {
                let push = |span| spans.push(place(span));
                // SAFETY: no span is kept.
                assert!(unsafe { self.memory.spans(*address, *len, push) });
            }
        }
        spans
    }
}

fn span(memory: &Memory, address: u64, len: u64) -> Span {
    // SAFETY: it goes with the memory into a rig, which every test keeps until its end.
    unsafe { memory.span(address, len) }.unwrap()
}

/// What makes two spans the same.
pub fn place(span: Span) -> (*mut u8, usize) {
    (span.as_ptr(), span.len())
}

pub fn places(spans: &[Span]) -> Vec<(*mut u8, usize)> {
    spans.iter().copied().map(place).collect()
}

pub fn buffer(address: u64, len: u32) -> Buffer {
    Buffer { address, len }
}

/// All bytes of a list of spans.
pub fn bytes(spans: &[Span]) -> Vec<u8> {
    let mut all = Vec::new();
    for span in spans {
        let mut here = vec![0; span.len()];
        span.read(&mut here);
        all.append(&mut here);
    }
    all
}

fn region(guest: u64, user: u64) -> Arc<Region> {
    let fd = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(REGION).unwrap();
    Arc::new(Region::map(file, 0, guest, user, REGION).unwrap())
}
