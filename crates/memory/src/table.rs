//! All regions of a session's memory, and how an address of the peer's becomes a [`Span`] of ours.
//!
//! The table never changes: a session that adds or removes a region makes a new table which shares
//! the mappings, so that a worker holding the old one keeps what it points into.

use std::sync::Arc;

use crate::{Region, Span};

/// Why a table cannot be changed as the peer asked.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Two regions claim the same addresses.
    #[error("the region at {guest:#x} of {len:#x} bytes overlaps one that is there already")]
    Overlap {
        /// Guest-physical address of the region that was to be added.
        guest: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// There is no such region.
    #[error("there is no region at {guest:#x} of {len:#x} bytes to remove")]
    Absent {
        /// Guest-physical address of the region that was to be removed.
        guest: u64,
        /// Its length in bytes.
        len: u64,
    },
}

/// The memory of one session.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Sorted by guest address; no two overlap, neither there nor in the peer's own address space.
    regions: Vec<Arc<Region>>,
    /// What [`Memory::span`] needs of each region, side by side: it runs for every descriptor.
    windows: Vec<Window>,
    /// The same, sorted by where they lie for us.
    by_place: Vec<Window>,
}

/// Where one region lies for the peer, and where for us.
#[derive(Clone, Copy, Debug)]
struct Window {
    guest: u64,
    here: Span,
}

impl Memory {
    /// This table and `region`.
    ///
    /// # Errors
    ///
    /// When the region overlaps one that is there, in guest or in user addresses.
    pub fn with(&self, region: Arc<Region>) -> Result<Self, TableError> {
        let overlap = |other: &Arc<Region>| {
            let crosses = |a: u64, b: u64| a < b + other.len() && b < a + region.len();
            crosses(region.guest(), other.guest()) || crosses(region.user(), other.user())
        };
        if self.regions.iter().any(overlap) {
            return Err(TableError::Overlap {
                guest: region.guest(),
                len: region.len(),
            });
        }
        let mut regions = self.regions.clone();
        let at = regions.partition_point(|other| other.guest() < region.guest());
        regions.insert(at, region);
        Ok(Self::of(regions))
    }

    /// This table without the region at `guest` (known to the peer as `user`) of `len` bytes, and
    /// that region.
    ///
    /// # Errors
    ///
    /// When there is none that matches in all three.
    pub fn without(
        &self,
        guest: u64,
        user: u64,
        len: u64,
    ) -> Result<(Self, Arc<Region>), TableError> {
        let is_it = |region: &Arc<Region>| {
            (region.guest(), region.user(), region.len()) == (guest, user, len)
        };
        let at = self
            .regions
            .iter()
            .position(is_it)
            .ok_or(TableError::Absent { guest, len })?;
        let mut regions = self.regions.clone();
        let region = regions.remove(at);
        Ok((Self::of(regions), region))
    }

    fn of(regions: Vec<Arc<Region>>) -> Self {
        let window = |region: &Arc<Region>| Window {
            guest: region.guest(),
            // SAFETY: the table keeps the region, and hands out parts of the span to those only that promise to keep
            // the table as long (`Memory::span`).
            here: unsafe { region.span() },
        };
        let windows: Vec<_> = regions.iter().map(window).collect();
        let mut by_place = windows.clone();
        by_place.sort_unstable_by_key(|window| window.here.as_ptr().addr());
        Self {
            regions,
            windows,
            by_place,
        }
    }

    /// The regions, by rising guest address.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// The `len` bytes at guest-physical `address`, where one region holds them all.
    ///
    /// # Safety
    ///
    /// This table, or another that shares the region, is kept until the span is used no more, nor a copy or part
    /// of it, nor what was made of those ([`Span::new`]).
    #[inline]
    #[must_use]
    pub unsafe fn span(&self, address: u64, len: u64) -> Option<Span> {
        // A peer may share hundreds, and look up thousands of addresses in a turn.
        let after = self
            .windows
            .partition_point(|window| window.guest <= address);
        let window = self.windows.get(after.checked_sub(1)?)?;
        let at = usize::try_from(address - window.guest).ok()?;
        window.here.slice(at, usize::try_from(len).ok()?)
    }

    /// Hands the `len` bytes at guest-physical `address` to `each`, in as many spans as there are
    /// regions they lie in: regions may touch, and a buffer may cross from one into the next.
    ///
    /// Returns whether all of them are memory; where not, `each` has seen some.
    ///
    /// # Safety
    ///
    /// As for [`Memory::span`].
    #[inline]
    #[must_use]
    pub unsafe fn spans(&self, address: u64, len: u32, mut each: impl FnMut(Span)) -> bool {
        // SAFETY: by this function's own promise.
        if let Some(span) = unsafe { self.span(address, u64::from(len)) } {
            each(span);
            return true;
        }
        // SAFETY: likewise.
        unsafe { self.crossing(address, u64::from(len), each) }
    }

    /// [`Memory::spans`] across regions.
    ///
    /// # Safety
    ///
    /// As for [`Memory::span`].
    #[cold]
    unsafe fn crossing(&self, mut address: u64, mut len: u64, mut each: impl FnMut(Span)) -> bool {
        while len > 0 {
            let after = self
                .regions
                .partition_point(|region| region.guest() <= address);
            let Some(region) = after.checked_sub(1).and_then(|at| self.regions.get(at)) else {
                return false;
            };
            let at = address - region.guest();
            if at >= region.len() {
                return false;
            }
            let here = len.min(region.len() - at);
            // SAFETY: by this function's own promise.
            let Some(span) = (unsafe { region.slice(at, here) }) else {
                return false;
            };
            each(span);
            // No wrap: `Region::map` refuses a region that ends beyond the address space.
            address += here;
            len -= here;
        }
        true
    }

    /// The guest-physical address of the first byte of `span`, which [`Memory::span`] has given out: of this
    /// table, or of one that had less regions.
    #[must_use]
    pub fn guest_address(&self, span: Span) -> Option<u64> {
        let at = span.as_ptr().addr();
        let after = self
            .by_place
            .partition_point(|window| window.here.as_ptr().addr() <= at);
        let window = self.by_place.get(after.checked_sub(1)?)?;
        let offset = at - window.here.as_ptr().addr();
        (offset < window.here.len()).then(|| window.guest + offset as u64)
    }

    /// One past the last guest-physical address there is; 0 without memory.
    #[must_use]
    pub fn end(&self) -> u64 {
        // No overflow: `Region::map` refuses a region that wraps.
        let end = |region: &Arc<Region>| region.guest() + region.len();
        self.regions.last().map_or(0, end)
    }

    /// The `len` bytes at the peer's own virtual `address`, where one region holds them all: the
    /// rings of a vhost-user session.
    ///
    /// # Safety
    ///
    /// As for [`Memory::span`].
    #[must_use]
    pub unsafe fn user_span(&self, address: u64, len: u64) -> Option<Span> {
        let holds = |region: &&Arc<Region>| {
            region.user() <= address && address - region.user() < region.len()
        };
        let region = self.regions.iter().find(holds)?;
        // SAFETY: by this function's own promise.
        unsafe { region.slice(address - region.user(), len) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::MapError;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn region(guest: u64, user: u64, len: u64) -> Arc<Region> {
        Arc::new(Region::map(file(len), 0, guest, user, len).unwrap())
    }

    /// A table with one region.
    fn table(guest: u64, user: u64, len: u64) -> Memory {
        Memory::default().with(region(guest, user, len)).unwrap()
    }

    fn span(memory: &Memory, address: u64, len: u64) -> Option<Span> {
        // SAFETY: the tests keep the table until after the last use of the span.
        unsafe { memory.span(address, len) }
    }

    fn user_span(memory: &Memory, address: u64, len: u64) -> Option<Span> {
        // SAFETY: as for `span`.
        unsafe { memory.user_span(address, len) }
    }

    #[test]
    fn an_address_is_found_in_its_region_only() {
        let memory = table(0x10_0000, 0x7000_0000, 0x4000);
        let memory = memory.with(region(0x1000, 0x6000_0000, 0x2000)).unwrap();
        assert!(span(&memory, 0x1000, 0x2000).is_some());
        assert!(span(&memory, 0x0fff, 1).is_none());
        assert!(span(&memory, 0x2fff, 2).is_none());
        assert!(span(&memory, 0x10_3fff, 1).is_some());
        assert!(span(&memory, 0x10_4000, 1).is_none());
        assert!(span(&memory, u64::MAX, 2).is_none());
        assert!(user_span(&memory, 0x7000_3ff0, 0x10).is_some());
        assert!(user_span(&memory, 0x7000_3ff1, 0x10).is_none());
        assert!(user_span(&memory, 0x1000, 1).is_none());
    }

    #[test]
    fn a_span_tells_where_the_guest_sees_it() {
        let memory = table(0x10_0000, 0x7000_0000, 0x4000);
        let more = memory.with(region(0x1000, 0x6000_0000, 0x2000)).unwrap();
        // The one in the middle was mapped first: by guest address they are in another order than by place.
        let more = more.with(region(0x20_0000, 0x8000_0000, 0x1000)).unwrap();
        for (address, len) in [
            (0x20_0000, 0x1000),
            (0x1000, 1),
            (0x2fff, 1),
            (0x10_0123, 0x1000),
            (0x10_3fff, 1),
        ] {
            let span = span(&more, address, len).unwrap();
            assert_eq!(more.guest_address(span), Some(address));
        }
        let old = span(&memory, 0x10_2000, 5).unwrap();
        assert_eq!(more.guest_address(old), Some(0x10_2000));
        let new = span(&more, 0x1000, 1).unwrap();
        assert_eq!(memory.guest_address(new), None);
        assert_eq!((more.end(), Memory::default().end()), (0x20_1000, 0));
    }

    #[test]
    fn a_buffer_may_cross_into_a_region_that_touches() {
        let memory = table(0x1000, 0x1000, 0x1000);
        let memory = memory.with(region(0x2000, 0x9000, 0x1000)).unwrap();
        let mut lens = Vec::new();
        // SAFETY: no span is kept.
        assert!(unsafe { memory.spans(0x1800, 0x1000, |span| lens.push(span.len())) });
        assert_eq!(lens, [0x800, 0x800]);
        // SAFETY: likewise.
        assert!(!unsafe { memory.spans(0x2800, 0x1000, |_| ()) });
    }

    #[test]
    fn what_is_written_through_one_table_is_in_the_file() {
        use std::os::unix::fs::FileExt;
        let backing = file(0x3000);
        let mapped = Region::map(backing.try_clone().unwrap(), 0x800, 0x5000, 0, 0x2000).unwrap();
        assert_eq!(mapped.file().1, 0x800);
        let memory = Memory::default().with(Arc::new(mapped)).unwrap();
        span(&memory, 0x5010, 4).unwrap().write(b"abcd");
        let mut seen = [0; 4];
        backing.read_exact_at(&mut seen, 0x810).unwrap();
        assert_eq!(&seen, b"abcd");
    }

    #[test]
    fn regions_that_overlap_are_refused_and_absent_ones_not_removed() {
        let memory = table(0x1000, 0x8000, 0x1000);
        for (guest, user) in [(0x1fff, 0x20000), (0x9000, 0x7fff)] {
            let refused = memory.with(region(guest, user, 0x10));
            assert!(matches!(refused, Err(TableError::Overlap { .. })));
        }
        assert!(matches!(
            memory.without(0x1000, 0x8000, 0x800),
            Err(TableError::Absent { .. })
        ));
        let (rest, gone) = memory.without(0x1000, 0x8000, 0x1000).unwrap();
        assert!(rest.regions().is_empty());
        assert_eq!(gone.guest(), 0x1000);
    }

    /// Safe code could else write requests with any address into the ring of an `io_uring`.
    #[test]
    fn what_is_not_memory_is_refused() {
        use rustix::event::{EventfdFlags, eventfd};
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(matches!(
            Region::map(eventfd.into(), 0, 0, 0, 4096),
            Err(MapError::NotMemory)
        ));
        // The node of a device lies on a tmpfs, and its pages come from elsewhere.
        let node = File::options().read(true).write(true).open("/dev/zero");
        assert!(matches!(
            Region::map(node.unwrap(), 0, 0, 0, 4096),
            Err(MapError::NotMemory)
        ));
        assert!(matches!(
            Region::map(
                File::open("/sys/devices/system/cpu/online").unwrap(),
                0,
                0,
                0,
                4096
            ),
            Err(MapError::FileSystem { kind: 0x6265_6572 })
        ));
        let Ok(ring) = crate::uring::Ring::new(file(4096)) else {
            return; // where there is none, nothing can be mapped of it
        };
        let ring = std::os::fd::AsFd::as_fd(&ring)
            .try_clone_to_owned()
            .unwrap();
        assert!(matches!(
            Region::map(ring.into(), 0, 0, 0, 4096),
            Err(MapError::NotMemory)
        ));
    }

    #[test]
    fn a_region_that_wraps_is_empty_or_exceeds_its_file_is_refused() {
        for (offset, guest, len) in [(0, 0, 0), (0, u64::MAX - 10, 4096), (u64::MAX, 0, 4096)] {
            let refused = Region::map(file(4096), offset, guest, 0, len);
            assert!(matches!(refused, Err(MapError::Extent { .. })));
        }
        assert!(matches!(
            Region::map(file(4096), 0, 0, 0, 8192),
            Err(MapError::Map { .. })
        ));
    }
}
