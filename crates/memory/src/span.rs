//! A stretch of shared memory, and a list of them: what a request reads into or writes from.
//!
//! One of the homes of `unsafe` (see DESIGN.md): everything that touches shared data goes through
//! the few copies below.
//!
//! A span has no lifetime, as requests outlive every stack frame. What makes its copies safe to call is that to
//! *have* one is the proof of a promise: code that makes a span out of memory that it owns does so in an `unsafe`
//! block, and answers for all that becomes of it. Hence whatever hands spans to code that it does not know is
//! `unsafe` to call, or an `unsafe trait` to implement.

use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

/// A stretch of memory that a peer may read and write at any moment.
///
/// Laid out like `struct iovec`, so that a list of spans is what `preadv` takes. A span is *lent*:
/// code that receives one inside a request uses it until the request has ended, and not later.
///
/// It cannot be had without a promise that the memory stays:
///
/// ```
/// # use pollux_memory::{Region, memfd};
/// let region = Region::map(memfd("m", 4096)?, 0, 0, 0, 4096)?;
/// // SAFETY: the region is kept until after the last use of the span.
/// let span = unsafe { region.span() };
/// span.write(&[1; 4096]);
/// drop(region);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// ```compile_fail,E0133
/// # use pollux_memory::{Region, memfd};
/// let region = Region::map(memfd("m", 4096)?, 0, 0, 0, 4096)?;
/// let span = region.span();
/// drop(region);
/// span.write(&[1; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Span {
    base: NonNull<u8>,
    len: usize,
}

/// A `T` at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

// SAFETY: a span is an address and a length; every access through it is a raw copy that is as sound
// (or unsound) from one thread as from another, by the promise made to `Span::new`.
unsafe impl Send for Span {}
// SAFETY: as for `Send`; a shared span offers nothing but the same raw copies.
unsafe impl Sync for Span {}

impl Span {
    /// The one without bytes.
    pub const EMPTY: Self = Self {
        base: NonNull::dangling(),
        len: 0,
    };

    /// Names `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// The bytes stay mapped, readable and writable for as long as the span is used, a copy or a part of it,
    /// or what was made of those (a list, a request, a lane of a ring): code that makes a span answers for all that it
    /// is given to. No Rust reference to the bytes exists in that time, but to atomics.
    ///
    /// Others may read and write the bytes meanwhile, in this process and elsewhere: a copy that races with
    /// them has any of their values, and nothing that this program decides rests on which.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Is there nothing in it?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Where it starts in this process; for system calls that fill or drain it.
    #[must_use]
    pub const fn as_ptr(self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The first `at` bytes and the rest.
    ///
    /// # Panics
    ///
    /// When `at` is beyond the end.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let halves = self
            .slice(0, at)
            .zip(self.slice(at, self.len.wrapping_sub(at)));
        halves.unwrap_or_else(|| panic!("a span of {} bytes cannot be split at {at}", self.len))
    }

    /// The `len` bytes from `at`, if they lie inside.
    #[inline]
    #[must_use]
    pub fn slice(self, at: usize, len: usize) -> Option<Self> {
        if at > self.len || len > self.len - at {
            return None;
        }
        // SAFETY: `at` is inside the span or one past its end, so in the same mapping.
        let base = unsafe { self.base.add(at) };
        Some(Self { base, len })
    }

    /// Copies all of it into `to`.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn read(self, to: &mut [u8]) {
        assert_eq!(
            to.len(),
            self.len,
            "read takes a buffer of the span's length"
        );
        // SAFETY: the span's bytes are mapped (`Span::new`), `to` is as long, and memory of our own
        // never overlaps memory that is only ever named by spans. A racing peer changes what is
        // copied, never where to.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// Overwrites all of it with `from`.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn write(self, from: &[u8]) {
        assert_eq!(
            from.len(),
            self.len,
            "write takes a buffer of the span's length"
        );
        // SAFETY: as in `read`, the other way round.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), self.len) }
    }

    /// Overwrites all of it with what `from` holds, wherever that is.
    ///
    /// # Panics
    ///
    /// When the lengths differ.
    pub fn copy_from(self, from: Self) {
        assert_eq!(from.len, self.len, "spans are copied to spans as long");
        // SAFETY: both are mapped (`Span::new`), and both are as long; they may overlap. A racing peer
        // changes what is copied, never where to.
        unsafe { ptr::copy(from.base.as_ptr(), self.base.as_ptr(), self.len) }
    }

    /// The `N` bytes from `at`, read once: what the caller checks is what it uses, whatever the peer
    /// writes meanwhile.
    ///
    /// # Panics
    ///
    /// When they reach beyond the end.
    #[inline]
    #[must_use]
    pub fn load<const N: usize>(self, at: usize) -> [u8; N] {
        self.contains::<N>(at);
        let mut bytes = [0; N];
        let (words, rest) = bytes.as_chunks_mut();
        let odd = at + N - rest.len();
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: the words lie one after another in the `N` bytes, which are inside.
            *word = unsafe { self.read_once::<u64>(at + 8 * number) }.to_ne_bytes();
        }
        for (number, byte) in rest.iter_mut().enumerate() {
            // SAFETY: as for the words, behind which they lie.
            *byte = unsafe { self.read_once(odd + number) };
        }
        bytes
    }

    /// The `T` at `at`. For whole words: an array of bytes is read in as many volatile accesses, sixteen
    /// for a descriptor, and to walk a chain takes 1.4 times as long.
    ///
    /// # Safety
    ///
    /// All of it is inside the span, and any bytes make a `T`.
    #[inline]
    unsafe fn read_once<T: Copy>(self, at: usize) -> T {
        // SAFETY: `at` is inside the span, so the address is inside its mapping.
        let from = unsafe { self.base.add(at) };
        // SAFETY: mapped, as is what follows up to the size of `T`; packed, so no alignment is needed.
        // Volatile, so that the compiler cannot read a second time.
        unsafe { from.cast::<Unaligned<T>>().read_volatile() }.0
    }

    /// Panics unless the `N` bytes at `at` are inside. The message is put together out of line: the span
    /// would be written to the stack for it before each load (6 % of the time that a chain takes).
    #[inline]
    fn contains<const N: usize>(self, at: usize) {
        #[cold]
        fn beyond(at: usize, len: usize, all: usize) -> ! {
            panic!("{len} bytes at {at} of a span of {all}")
        }
        if at > self.len || N > self.len - at {
            beyond(at, N, self.len);
        }
    }

    /// Stores `bytes` at `at`.
    ///
    /// # Panics
    ///
    /// When they reach beyond the end.
    #[inline]
    pub fn store<const N: usize>(self, at: usize, bytes: [u8; N]) {
        self.contains::<N>(at);
        // SAFETY: `at` is inside the span (checked above), so the address is inside its mapping.
        let to = unsafe { self.base.add(at) };
        // SAFETY: `N` bytes are mapped there, and an array of bytes has no alignment.
        unsafe { to.cast::<[u8; N]>().write(bytes) }
    }

    /// Sets the bits of `mask` in the byte at `at`, at once: a peer that clears bits at the same time
    /// loses none. A thread that finds them set, and acquires, sees all that was stored before.
    ///
    /// # Panics
    ///
    /// When `at` is beyond the end.
    #[inline]
    pub fn set_bits(self, at: usize, mask: u8) {
        self.contains::<1>(at);
        // SAFETY: `at` is inside the span (checked above), so the address is inside its mapping.
        let byte = unsafe { self.base.add(at) };
        // SAFETY: mapped as long as the span is in use (`Span::new`), and a byte has no alignment. The
        // reference lives for this one operation, which is atomic, as those of the peer are.
        let byte = unsafe { AtomicU8::from_ptr(byte.as_ptr()) };
        byte.fetch_or(mask, Ordering::Release);
    }

    /// Overwrites all of it with zeroes.
    pub fn zero(self) {
        // SAFETY: the span's bytes are mapped and writable (`Span::new`).
        unsafe { ptr::write_bytes(self.base.as_ptr(), 0, self.len) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}+{:#x}", self.base, self.len)
    }
}

/// The list of spans of one request, lent with it.
///
/// It is a borrow without a lifetime: requests outlive every stack frame, their slot owns the list.
#[derive(Clone, Copy)]
pub struct Spans {
    first: NonNull<Span>,
    count: usize,
}

// SAFETY: a list of `Send` and `Sync` values that does not change while it is lent (`Spans::new`).
unsafe impl Send for Spans {}
// SAFETY: as for `Send`.
unsafe impl Sync for Spans {}

impl Spans {
    /// The list without spans: of a flush, a discard.
    pub const NONE: Self = Self {
        first: NonNull::dangling(),
        count: 0,
    };

    /// Lends `list`.
    ///
    /// # Safety
    ///
    /// The list neither moves nor changes for as long as this or a copy of it is used: until the request that
    /// it is lent to has ended.
    #[must_use]
    pub const unsafe fn new(list: &[Span]) -> Self {
        // `as_ptr` of a slice is never null, whatever its length.
        let first = NonNull::new(list.as_ptr().cast_mut()).expect("a slice has an address");
        Self {
            first,
            count: list.len(),
        }
    }

    /// The sum of the lengths, in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.iter().map(|span| span.len() as u64).sum()
    }

    /// What is left after the first `bytes`.
    #[must_use]
    pub fn skip(self, bytes: u64) -> Vec<Span> {
        let mut left = bytes;
        let mut rest = self.iter();
        let cut = rest.find_map(|&span| {
            let len = span.len() as u64;
            if left >= len {
                left -= len;
                return None;
            }
            let at = usize::try_from(left).expect("less than the span's length");
            Some(span.split_at(at).1)
        });
        cut.into_iter().chain(rest.copied()).collect()
    }
}

impl Deref for Spans {
    type Target = [Span];

    fn deref(&self) -> &[Span] {
        // SAFETY: `Spans::new`'s caller keeps the list in place and unchanged while it is lent, and
        // a span is plain data of our own memory: only what it names is shared.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Where the list is, not what is in it: a request is shown long after it has ended, by what remembers it.
impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} spans at {:p}", self.count, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_copies_both_ways_and_splits() {
        let mut bytes = *b"0123456789";
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: `bytes` outlives the span and is not touched by name until the last copy.
        let span = unsafe { Span::new(base, bytes.len()) };
        let (head, tail) = span.split_at(4);
        head.write(b"abcd");
        tail.split_at(5).1.zero();
        let mut seen = [0; 10];
        span.read(&mut seen);
        assert_eq!(&seen, b"abcd45678\0");
        assert!(span.split_at(10).1.is_empty());
    }

    #[test]
    fn skipping_keeps_what_is_left() {
        let mut bytes = [0; 100];
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the spans are never read or written.
        let (head, tail) = unsafe { Span::new(base, 100) }.split_at(30);
        let list = [head, tail];
        // SAFETY: the list stays where it is until the last access to it.
        let spans = unsafe { Spans::new(&list) };
        let lens = |bytes| {
            spans
                .skip(bytes)
                .iter()
                .map(|span| span.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(lens(0), [30, 70]);
        assert_eq!(lens(29), [1, 70]);
        assert_eq!(lens(30), [70]);
        assert_eq!(lens(99), [1]);
        assert!(lens(100).is_empty());
    }

    #[test]
    #[should_panic(expected = "cannot be split")]
    fn a_split_beyond_the_end_is_refused() {
        let mut byte = 0u8;
        // SAFETY: one byte that outlives the span.
        let _ = unsafe { Span::new(NonNull::from(&mut byte), 1) }.split_at(2);
    }
}
