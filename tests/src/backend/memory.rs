//! The frontend's memory, as its messages describe it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A region as a message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Where descriptors see it.
    pub guest: u64,
    /// Bytes.
    pub len: u64,
    /// Where the addresses of rings see it.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// What has been announced and not taken back.
#[derive(Default)]
pub(super) struct Memory(Vec<Region>);

struct Region {
    extent: Extent,
    /// The file from its beginning to the end of the region: no offset has to be aligned for that.
    start: NonNull<u8>,
    mapped: usize,
}

/// Some bytes of a region, while the memory stays as it is.
#[derive(Clone, Copy)]
pub(super) struct Place<'memory> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'memory Memory>,
}

// SAFETY: the mapping lives as long as the value; it is only seen through raw copies and atomics.
unsafe impl Send for Region {}

impl Memory {
    /// A region is there from now on.
    pub fn add(&mut self, extent: Extent, file: &OwnedFd) -> io::Result<()> {
        let mapped = extent.offset.checked_add(extent.len);
        let mapped = mapped.and_then(|bytes| usize::try_from(bytes).ok());
        let mapped = mapped.ok_or_else(|| io::Error::other(format!("{extent:x?} is too long")))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast()).expect("a mapping is not at 0");
        self.0.push(Region {
            extent,
            start,
            mapped,
        });
        Ok(())
    }

    /// The region is gone; false if there was none like it.
    pub fn remove(&mut self, extent: Extent) -> bool {
        let before = self.0.len();
        let same = |other: &Extent| {
            (other.guest, other.user, other.len) == (extent.guest, extent.user, extent.len)
        };
        self.0.retain(|region| !same(&region.extent));
        self.0.len() < before
    }

    /// Where its regions are.
    pub fn extents(&self) -> Vec<&Extent> {
        self.0.iter().map(|region| &region.extent).collect()
    }

    /// The `len` bytes that a descriptor calls `address`, where all of them are known.
    pub fn guest(&self, address: u64, len: usize) -> Option<Place<'_>> {
        self.find(address, len, |extent| extent.guest)
    }

    /// The `len` bytes that the messages about rings call `address`.
    pub fn user(&self, address: u64, len: usize) -> Option<Place<'_>> {
        self.find(address, len, |extent| extent.user)
    }

    fn find(&self, address: u64, len: usize, base: impl Fn(&Extent) -> u64) -> Option<Place<'_>> {
        self.0.iter().find_map(|region| {
            let inside = address.checked_sub(base(&region.extent))?;
            let left = region.extent.len.checked_sub(inside)?;
            if left < len as u64 {
                return None;
            }
            let offset = usize::try_from(region.extent.offset + inside).ok()?;
            // SAFETY: the region's end is the mapping's, and this is not beyond it.
            let start = unsafe { region.start.add(offset) };
            Some(Place {
                start,
                len,
                memory: PhantomData,
            })
        })
    }
}

impl<'memory> Place<'memory> {
    /// A copy of it.
    pub fn get(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: mapped while the memory is borrowed; the driver may look at the same time, hence a
        // raw copy.
        unsafe {
            self.start
                .as_ptr()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), self.len);
        }
        bytes
    }

    /// Overwrites it with as many `bytes`.
    pub fn put(self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len, "as many bytes as there is room for");
        // SAFETY: as in `get`.
        unsafe {
            self.start
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), self.len);
        }
    }

    /// The first byte of it, as the driver may watch it change.
    pub fn store(self, byte: u8) {
        assert!(self.len > 0);
        // SAFETY: mapped while the memory is borrowed, and a byte has no alignment.
        let word = unsafe { AtomicU8::from_ptr(self.start.as_ptr()) };
        word.store(byte, Ordering::Relaxed);
    }

    /// The 16-bit word that this is, if its address is even.
    pub fn word(self) -> Option<&'memory AtomicU16> {
        let word = self.start.cast::<u16>();
        if self.len != 2 || !word.is_aligned() {
            return None;
        }
        // SAFETY: mapped while the memory is borrowed, aligned, and shared: the driver uses atomics as
        // well.
        Some(unsafe { AtomicU16::from_ptr(word.as_ptr()) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nobody else has this mapping, and places borrow the memory that it belongs to.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}
