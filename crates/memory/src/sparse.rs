//! Memory of our own, as large as you like, of which only what is written takes up room.
//!
//! An anonymous mapping, not a memfd: reading a hole of a memfd through its mapping allocates the
//! page, so that reading a whole disk once would cost as much memory as the disk is large. Reading
//! a hole here finds the kernel's one page of zeroes.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::Span;

/// Zeroes, until they are overwritten.
///
/// Any thread may copy any part at any moment. Copies that race leave a mixture of their bytes, as
/// overlapping requests do on any disk, and this program never interprets a copy.
///
/// Nothing is reserved: when the machine runs out of memory at the first write to a page, the kernel
/// makes room as it does for everybody, by killing a process. Where it is told never to promise more
/// than it has (`vm.overcommit_memory=2`), [`Sparse::new`] fails instead.
#[derive(Debug)]
pub struct Sparse {
    base: NonNull<u8>,
    /// A multiple of the page size. One page without access lies before, and one behind: so that the
    /// kernel does not merge the mapping with a neighbour, and tells of it alone.
    len: usize,
}

// SAFETY: it owns its mapping and hands out no reference to it; every access is a raw copy, as sound
// from one thread as from another.
unsafe impl Send for Sparse {}
// SAFETY: as for `Send`.
unsafe impl Sync for Sparse {}

impl Sparse {
    /// `len` zeroes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the address space, a resource limit or the kernel's policy cannot hold them.
    pub fn new(len: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let fits = |len: usize| len.checked_next_multiple_of(page)?.checked_add(2 * page);
        let whole = usize::try_from(len)
            .ok()
            .and_then(fits)
            .filter(|&whole| isize::try_from(whole).is_ok())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, wherever the kernel finds room.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags)
        }?;
        let start = NonNull::new(start.cast::<u8>()).expect("a mapping is never at address 0");
        // SAFETY: the first page is inside the mapping, which is at least two pages long.
        let base = unsafe { start.add(page) };
        let sparse = Self {
            base,
            len: whole - 2 * page,
        };
        sparse.open_up()?;
        Ok(sparse)
    }

    /// Its length in bytes, whole pages.
    #[allow(clippy::len_without_is_empty, reason = "no caller asks")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Copies what is at `at` into all of `into`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    #[inline]
    pub fn read(&self, at: u64, into: Span) {
        let from = self.address(at, into.len());
        // SAFETY: `address` checked that as many bytes are mapped here as `into` names, and `into`'s
        // are mapped as long as it is lent. They never overlap: spans name a peer's memory, and
        // no other is ever given a piece of this mapping.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), into.len()) }
    }

    /// Overwrites what is at `at` with all of `from`.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    #[inline]
    pub fn write(&self, at: u64, from: Span) {
        let into = self.address(at, from.len());
        // SAFETY: as in `read`, the other way round.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) }
    }

    /// Overwrites the `len` bytes at `at` with zeroes, which take up room as anything written does.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn zero(&self, at: u64, len: usize) {
        let from = self.address(at, len);
        // SAFETY: `address` checked that `len` bytes are mapped there.
        unsafe { ptr::write_bytes(from.as_ptr(), 0, len) }
    }

    /// Makes the `len` bytes at `at` zeroes, whole pages by giving them back.
    ///
    /// # Panics
    ///
    /// When that reaches beyond the end.
    pub fn discard(&self, at: u64, len: usize) {
        let start = self.address(at, len);
        let page = rustix::param::page_size();
        let lead = start.align_offset(page).min(len);
        let whole = (len - lead) / page * page;
        self.zero(at, lead);
        self.zero(at + (lead + whole) as u64, len - lead - whole);
        if whole == 0 {
            return;
        }
        // SAFETY: `lead` is at most `len`, and `len` bytes lie there.
        let first = unsafe { start.add(lead) };
        // SAFETY: `whole` bytes from `first` are whole pages of our own mapping. Nobody holds a
        // reference into it: a copy that races with this sees the bytes, or zeroes.
        unsafe { rustix::mm::madvise(first.as_ptr().cast(), whole, Advice::LinuxDontNeed) }
            .expect("pages of our own can always be given back");
    }

    /// How many bytes are taken up, in memory and in swap: whole pages that were written since they
    /// were last discarded. Slow, as it asks the kernel for a description of the whole process.
    ///
    /// # Errors
    ///
    /// When `/proc/self/smaps` cannot be read.
    pub fn allocated(&self) -> io::Result<u64> {
        let start = format!("{:08x}-", self.base.as_ptr() as usize);
        let smaps = fs::read_to_string("/proc/self/smaps")?;
        let kib = smaps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .take_while(|line| !line.starts_with("VmFlags:"))
            .filter_map(|line| {
                let (key, value) = line.split_once(':')?;
                let counts = matches!(key, "Anonymous" | "Swap");
                counts.then(|| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())?
            });
        Ok(kib.sum::<u64>() * 1024)
    }

    fn open_up(&self) -> io::Result<()> {
        let start = self.base.as_ptr().cast::<c_void>();
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: pages of our own mapping, to which there is no reference.
        unsafe {
            rustix::mm::mprotect(start, self.len, MprotectFlags::READ | MprotectFlags::WRITE)
        }?;
        // Both are only advice. With huge pages a write of 512 bytes would take up 2 MiB, and a
        // discard would give back nothing until it has covered all of them; and a core dump is not
        // the place for the contents of a disk.
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: as above; neither changes what the pages hold.
            let _ = unsafe { rustix::mm::madvise(start, self.len, advice) };
        }
        Ok(())
    }

    #[inline]
    fn address(&self, at: u64, len: usize) -> NonNull<u8> {
        let inside = usize::try_from(at)
            .ok()
            .filter(|&at| at <= self.len && len <= self.len - at);
        let Some(at) = inside else {
            panic!("{len} bytes at {at} of {} bytes of memory", self.len);
        };
        // SAFETY: `at` is inside the mapping, or one past its last byte.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        let page = rustix::param::page_size();
        // SAFETY: the page before `base` belongs to the mapping.
        let start = unsafe { self.base.sub(page) };
        // SAFETY: exactly what `new` mapped; no reference into it was ever handed out.
        let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), self.len + 2 * page) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &mut [u8]) -> Span {
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the tests below keep `bytes` and do not touch it while the span is in use.
        unsafe { Span::new(base, bytes.len()) }
    }

    fn read(sparse: &Sparse, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        sparse.read(at, span(&mut bytes));
        bytes
    }

    #[test]
    fn only_what_is_written_takes_up_room() {
        let sparse = Sparse::new(1 << 40).unwrap();
        assert_eq!(sparse.allocated().unwrap(), 0);
        assert_eq!(read(&sparse, (1 << 40) - 9000, 9000), vec![0; 9000]);
        assert_eq!(sparse.allocated().unwrap(), 0, "reading allocates nothing");
        sparse.write(1 << 33, span(&mut vec![7; 1 << 20]));
        assert_eq!(sparse.allocated().unwrap(), 1 << 20);
        assert_eq!(read(&sparse, (1 << 33) + 4, 3), [7; 3]);
    }

    #[test]
    fn discarded_pages_are_given_back_and_parts_of_pages_zeroed() {
        let sparse = Sparse::new(1 << 20).unwrap();
        sparse.write(0, span(&mut vec![7; 1 << 20]));
        sparse.discard(512, (1 << 20) - 1024);
        let page = rustix::param::page_size() as u64;
        assert_eq!(sparse.allocated().unwrap(), 2 * page);
        let mut expected = vec![0; 1 << 20];
        expected[..512].fill(7);
        expected[(1 << 20) - 512..].fill(7);
        assert_eq!(read(&sparse, 0, 1 << 20), expected);
        sparse.discard(100, 200);
        expected[100..300].fill(0);
        assert_eq!(read(&sparse, 0, 1 << 20), expected);
        sparse.discard(0, 1 << 20);
        assert_eq!(sparse.allocated().unwrap(), 0);
    }

    #[test]
    fn a_length_beyond_the_address_space_is_refused() {
        for len in [u64::MAX, 1 << 62, u64::MAX - (1 << 13)] {
            let refused = Sparse::new(len).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        }
    }

    #[test]
    #[should_panic(expected = "4096 bytes of memory")]
    fn a_copy_beyond_the_end_is_refused() {
        Sparse::new(4096).unwrap().write(4000, span(&mut [0; 97]));
    }
}
