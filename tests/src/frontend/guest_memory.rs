//! Memory that a test shares with a backend, as a guest would.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Region;

/// A file in memory, mapped. Its three addresses differ on purpose: here, in the guest, and in what
/// the protocol calls the frontend's address space. Who mixes them up does not find the memory.
pub struct GuestMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    len: usize,
    guest: u64,
}

// SAFETY: the mapping lives as long as the value; it is only seen through raw copies and atomics.
unsafe impl Send for GuestMemory {}
// SAFETY: as above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// `len` bytes of zeroes that the guest sees at `guest`.
    pub fn new(guest: u64, len: usize) -> io::Result<Self> {
        let file = memfd_create("pollux-test-guest", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).expect("a mapping is not at 0");
        Ok(Self {
            file,
            start,
            len,
            guest,
        })
    }

    /// Its description in messages.
    pub fn region(&self) -> Region<'_> {
        Region {
            guest: self.guest,
            user: self.user(0),
            len: self.len as u64,
            fd: self.file.as_fd(),
        }
    }

    /// What descriptors call the byte at `offset`.
    pub const fn guest(&self, offset: usize) -> u64 {
        self.guest + offset as u64
    }

    /// What the messages about rings call the byte at `offset`.
    pub const fn user(&self, offset: usize) -> u64 {
        self.guest + (1 << 44) + offset as u64
    }

    fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(
            offset + len <= self.len,
            "{len} bytes at {offset} leave the memory"
        );
        // SAFETY: the assertion keeps it inside the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Copies `bytes` to `offset`.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: `pointer` checked the range; the backend may look at the same time, hence a raw copy.
        unsafe {
            to.as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Copies `len` bytes from `offset`.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let from = self.pointer(offset, len);
        let mut bytes = vec![0; len];
        // SAFETY: as in `put`.
        unsafe {
            from.as_ptr()
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), len);
        }
        bytes
    }

    /// The 16-bit word at `offset`, which must be even.
    pub fn word(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2));
        let word = self.pointer(offset, 2);
        // SAFETY: it is inside the mapping, aligned, and shared: the backend uses atomics as well.
        unsafe { AtomicU16::from_ptr(word.as_ptr().cast()) }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: nobody else has this mapping, and nothing that points into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
