//! A guest's memory with a ring in it whose driver needs no time: its chains never change, only the
//! index of the available ring moves on.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// The ring's size.
pub const RING: u16 = 256;
/// What the device says that it wrote into each chain.
pub const WRITTEN: u32 = DATA_LEN + 1;

/// How many chains there are; entry `n` of the available ring is chain `n % CHAINS`.
const CHAINS: u16 = 64;
const HEADER_LEN: u32 = 16;
const DATA_LEN: u32 = 4096;

/// Where things lie in each region. The ring is in the first.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const TABLES: u64 = 0x4000;
const HEADERS: u64 = 0x1_0000;
const DATA: u64 = 0x10_0000;
const REGION: u64 = 0x20_0000;
/// From one region to the next there is a hole.
const STRIDE: u64 = 0x4000_0000;
const BASE: u64 = 0x10_0000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Of what a request is made: header, data and status in three descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In the ring's own table.
    Direct,
    /// In a table of their own.
    Indirect,
}

/// The memory, and the driver's part of the ring.
pub struct Guest {
    regions: Vec<File>,
    index: u16,
}

impl Guest {
    /// Memory of `regions` regions, over which the chains' buffers are spread.
    ///
    /// # Panics
    ///
    /// When the system has no memory left.
    #[must_use]
    pub fn new(kind: Kind, regions: u16) -> Self {
        let region = |_| {
            let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd can be created");
            let file = File::from(fd);
            file.set_len(REGION).expect("there is memory");
            file
        };
        let guest = Self {
            regions: (0..regions).map(region).collect(),
            index: 0,
        };
        for chain in 0..CHAINS {
            guest.describe(kind, chain);
        }
        for slot in 0..RING {
            let chain = slot % CHAINS;
            let head = if kind == Kind::Direct {
                3 * chain
            } else {
                chain
            };
            guest.write(AVAILABLE + 4 + 2 * u64::from(slot), &head.to_le_bytes());
        }
        guest
    }

    /// Writes the descriptors of a chain, and its own number into each of its buffers.
    fn describe(&self, kind: Kind, chain: u16) {
        let at = u64::from(chain);
        let region = usize::from(chain) % self.regions.len();
        let start = Self::address(region);
        let parts = [
            (HEADERS + 32 * at, HEADER_LEN, NEXT),
            (DATA + u64::from(DATA_LEN) * at, DATA_LEN, NEXT | WRITE),
            (HEADERS + 32 * at + 16, 1, WRITE),
        ];
        let (table, first) = match kind {
            Kind::Direct => (DESCRIPTORS, 3 * chain),
            Kind::Indirect => {
                let table = TABLES + 48 * at;
                self.write_descriptor(DESCRIPTORS, chain, (BASE + table, 48, INDIRECT), 0);
                (table, 0)
            }
        };
        for ((offset, len, flags), number) in parts.into_iter().zip(first..) {
            self.write_descriptor(table, number, (start + offset, len, flags), number + 1);
            let mark = chain.to_le_bytes()[0];
            self.regions[region]
                .write_all_at(&[mark], offset)
                .expect("memory can be written");
        }
    }

    fn write_descriptor(
        &self,
        table: u64,
        at: u16,
        (address, len, flags): (u64, u32, u16),
        next: u16,
    ) {
        let at = table + 16 * u64::from(at);
        self.write(at, &address.to_le_bytes());
        self.write(at + 8, &len.to_le_bytes());
        self.write(at + 12, &flags.to_le_bytes());
        self.write(at + 14, &next.to_le_bytes());
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.regions[0]
            .write_all_at(bytes, offset)
            .expect("memory can be written");
    }

    /// Makes `chains` more chains available.
    pub fn offer(&mut self, chains: u16) {
        self.index = self.index.wrapping_add(chains);
        self.write(AVAILABLE + 2, &self.index.to_le_bytes());
    }

    /// The used ring as the device left it.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    #[must_use]
    pub fn used(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4 + 8 * usize::from(RING)];
        self.regions[0]
            .read_exact_at(&mut bytes, USED)
            .expect("memory can be read");
        bytes
    }

    /// Each region: its file, its address and its length.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (File, u64, u64)> {
        self.regions.iter().enumerate().map(|(at, file)| {
            let file = file.try_clone().expect("a file can be shared");
            (file, Self::address(at), REGION)
        })
    }

    fn address(region: usize) -> u64 {
        BASE + STRIDE * region as u64
    }

    /// The addresses of descriptor table, available ring and used ring.
    pub(crate) fn ring() -> [u64; 3] {
        [DESCRIPTORS, AVAILABLE, USED].map(|offset| BASE + offset)
    }
}
