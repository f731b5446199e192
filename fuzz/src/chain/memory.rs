//! A guest's memory: two regions that touch, one at the very end of the address space, and the ring in
//! one of its own, where no chain can point and so nothing but the device's end writes.

use std::fs::File;
use std::sync::Arc;

use pollux_memory::{Memory, Region};
use pollux_ring::{Areas, Layout, MAX_CHAIN};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// Bytes in a region. An indirect table with one descriptor too many fits into the first two.
pub const REGION: usize = 0x2400;
/// Where the first region starts.
pub const LOW: u64 = 0x1_0000;
/// Where the second one starts: where the first ends.
pub const SEAM: u64 = LOW + REGION as u64;
/// Where the second one ends.
pub const END: u64 = SEAM + REGION as u64;
/// Where the last one starts, which ends with the address space.
pub const TOP: u64 = u64::MAX - REGION as u64;

const _: () = assert!(2 * REGION > 16 * (MAX_CHAIN as usize + 1));

const AVAILABLE: usize = 0x2000;
const USED: usize = 0x3000;
const RING: usize = 0x4000;

/// What is mapped once and used by every run of a thread.
pub struct Rig {
    regions: [Arc<Region>; 3],
    table: Arc<Memory>,
    ring: Arc<Region>,
    /// The driver's, an eventfd.
    call: File,
}

thread_local! {
    static RIG: Rig = Rig::new();
}

/// Calls `run` with this thread's memory.
pub fn with(run: impl FnOnce(&Rig)) {
    RIG.with(run);
}

fn region(guest: u64, len: usize) -> Arc<Region> {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd can be made");
    let file = File::from(file);
    file.set_len(len as u64).expect("a memfd can grow");
    // The peer's own addresses mean nothing here.
    let user = guest.min(TOP);
    Arc::new(Region::map(file, 0, guest, user, len as u64).expect("a memfd can be mapped"))
}

impl Rig {
    fn new() -> Self {
        let regions = [LOW, SEAM, TOP].map(|guest| region(guest, REGION));
        let table = regions.iter().fold(Memory::default(), |table, region| {
            table.with(Arc::clone(region)).expect("they do not overlap")
        });
        Self {
            regions,
            table: Arc::new(table),
            ring: region(0, RING),
            call: File::from(
                eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                    .expect("an eventfd can be made"),
            ),
        }
    }

    /// All zeroes, no calls, and a ring of which the driver has made available what is before `next`.
    pub fn clear(&self, next: u16, used: u16) {
        self.calls();
        for region in &self.regions {
            region.write(0, &[0; REGION]);
        }
        self.ring.write(0, &[0; RING]);
        self.put(AVAILABLE + 2, next.to_le_bytes());
        self.put(USED + 2, used.to_le_bytes());
    }

    /// Through which the driver is called.
    pub fn call(&self) -> File {
        self.call.try_clone().expect("an eventfd can be shared")
    }

    /// How often the driver was called since the last look.
    pub fn calls(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.call, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN, "an eventfd can be read");
                0
            }
        }
    }

    pub fn table(&self) -> Arc<Memory> {
        Arc::clone(&self.table)
    }

    /// Where the ring lies.
    pub fn areas(&self, size: u16) -> Areas {
        let layout = Layout::of(size);
        #[expect(unsafe_code, reason = "a ring lies where it is said to")]
        // SAFETY: the rig is this thread's for ever, and no queue outlives a run.
        let ring = unsafe { self.ring.span() };
        let part = |at, len| ring.slice(at, len).expect("it fits");
        Areas::new(
            u32::from(size),
            part(0, layout.descriptor),
            part(AVAILABLE, layout.driver),
            part(USED, layout.device),
        )
        .expect("the parts are aligned and long enough")
    }

    /// What is in guest memory, into `bytes`.
    pub fn read(&self, bytes: &mut [u8]) {
        for (region, to) in self.regions.iter().zip(bytes.chunks_exact_mut(REGION)) {
            region.read(0, to);
        }
    }

    /// Writes the byte `at` of guest memory, for the driver.
    pub fn set(&self, at: usize, byte: u8) {
        self.regions[at / REGION].write(at % REGION, &[byte]);
    }

    fn put<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        self.ring.write(at, &bytes);
    }

    /// Writes descriptor `at` of the ring's table.
    pub fn describe(&self, at: u8, descriptor: [u8; 16]) {
        self.put(16 * usize::from(at), descriptor);
    }

    /// Makes `head` available in a ring of `size` entries.
    pub fn offer(&self, head: u16, size: u16) {
        let next = self.ring().available_idx();
        let entry = AVAILABLE + 4 + 2 * usize::from(next % size);
        self.put(entry, head.to_le_bytes());
        self.set_available_idx(next.wrapping_add(1));
    }

    pub fn set_available_idx(&self, idx: u16) {
        self.put(AVAILABLE + 2, idx.to_le_bytes());
    }

    /// Sets the flags of the available ring, and `used_event`.
    pub fn set_wishes(&self, flags: u16, event: u16, size: u16) {
        self.put(AVAILABLE, flags.to_le_bytes());
        self.put(AVAILABLE + 4 + 2 * usize::from(size), event.to_le_bytes());
    }

    /// The driver's parts of the ring.
    pub fn ring(&self) -> Ring<'_> {
        Ring(&self.ring)
    }

    /// Panics unless the used elements from index `from` on are `expected`, and no others. Those that the
    /// device has overwritten with later ones are not looked at.
    pub fn check_used(&self, size: u16, from: u16, expected: &[(u16, u32)]) {
        let ring = self.ring();
        let idx = u16::from_le_bytes(ring.load(USED + 2));
        assert_eq!(
            usize::from(idx.wrapping_sub(from)),
            expected.len(),
            "used elements"
        );
        let overwritten = expected.len().saturating_sub(usize::from(size));
        for (at, expected) in (from..=u16::MAX)
            .chain(0..from)
            .zip(expected)
            .skip(overwritten)
        {
            let at = USED + 4 + 8 * usize::from(at % size);
            let word = |at| u32::from_le_bytes(ring.load(at));
            assert_eq!(
                (word(at), word(at + 4)),
                (u32::from(expected.0), expected.1),
                "a used element"
            );
        }
    }
}

/// The place of guest `address` in the bytes that [`Rig::read`] reads, if it is memory.
pub fn place(address: u64) -> Option<usize> {
    let at = match address {
        LOW..END => address - LOW,
        // The very last address is nobody's: a region ends before it.
        u64::MAX => return None,
        TOP.. => address - TOP + 2 * REGION as u64,
        _ => return None,
    };
    usize::try_from(at).ok()
}

/// A look at what the driver wrote into its ring.
pub struct Ring<'a>(&'a Region);

impl Ring<'_> {
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read(at, &mut bytes);
        bytes
    }

    pub fn available_idx(&self) -> u16 {
        u16::from_le_bytes(self.load(AVAILABLE + 2))
    }

    pub fn entry(&self, at: u16) -> u16 {
        u16::from_le_bytes(self.load(AVAILABLE + 4 + 2 * usize::from(at)))
    }

    pub fn descriptor(&self, at: u16) -> [u8; 16] {
        self.load(16 * usize::from(at))
    }

    /// The flags of the available ring.
    pub fn flags(&self) -> u16 {
        u16::from_le_bytes(self.load(AVAILABLE))
    }

    /// `used_event` of a ring of `size` entries.
    pub fn used_event(&self, size: u16) -> u16 {
        u16::from_le_bytes(self.load(AVAILABLE + 4 + 2 * usize::from(size)))
    }
}
