//! Single words of shared memory, stored one after the other for a process that finds them later.
//!
//! One of the homes of `unsafe`: each store is one atomic store.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use crate::Span;

/// A number that memory takes in one store.
pub trait Word: Copy + private::Word {}

impl Word for u8 {}
impl Word for u16 {}
impl Word for u64 {}

mod private {
    use super::{AtomicU8, AtomicU16, AtomicU64, NonNull, Ordering};

    pub trait Word {
        /// Stores it at `to`, after all that this thread stored before.
        ///
        /// # Safety
        ///
        /// `to` is mapped, aligned for the word, and no reference to it is formed.
        unsafe fn release(self, to: NonNull<u8>);
    }

    impl Word for u8 {
        #[inline]
        unsafe fn release(self, to: NonNull<u8>) {
            // SAFETY: by this function's own promise.
            unsafe { AtomicU8::from_ptr(to.as_ptr()) }.store(self, Ordering::Release);
        }
    }

    impl Word for u16 {
        #[inline]
        unsafe fn release(self, to: NonNull<u8>) {
            // SAFETY: by this function's own promise.
            unsafe { AtomicU16::from_ptr(to.cast().as_ptr()) }.store(self, Ordering::Release);
        }
    }

    impl Word for u64 {
        #[inline]
        unsafe fn release(self, to: NonNull<u8>) {
            // SAFETY: by this function's own promise.
            unsafe { AtomicU64::from_ptr(to.cast().as_ptr()) }.store(self, Ordering::Release);
        }
    }
}

impl Span {
    /// Stores `word` at `at` in one piece, after all that this thread stored before.
    ///
    /// # Panics
    ///
    /// When it reaches beyond the end, or does not lie at a multiple of its size.
    #[inline]
    pub fn release<W: Word>(self, at: usize, word: W) {
        #[cold]
        fn misplaced(at: usize, len: usize, span: Span) -> ! {
            panic!("a word of {len} bytes at {at} of the span {span:?}")
        }
        let Some(place) = self.slice(at, size_of::<W>()) else {
            misplaced(at, size_of::<W>(), self)
        };
        let to = NonNull::new(place.as_ptr()).expect("no span starts at address 0");
        if !to.addr().get().is_multiple_of(size_of::<W>()) {
            misplaced(at, size_of::<W>(), self)
        }
        // SAFETY: inside the span, which is mapped (`Span::new`), and aligned; shared memory is never seen
        // through references.
        unsafe { word.release(to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(words: &mut [u64]) -> Span {
        let base = NonNull::new(words.as_mut_ptr().cast()).unwrap();
        // SAFETY: the tests keep `words` and do not touch them while the span is in use.
        unsafe { Span::new(base, 8 * words.len()) }
    }

    #[test]
    fn words_of_every_size_are_stored_where_they_belong() {
        let mut words = [u64::MAX; 2];
        let span = span(&mut words);
        span.release(0, 1u8);
        span.release(6, 0x0203u16);
        span.release(8, 4u64);
        assert_eq!(span.load::<1>(0), [1]);
        assert_eq!(span.load::<5>(1), [0xff; 5]);
        assert_eq!(u16::from_ne_bytes(span.load(6)), 0x0203);
        assert_eq!(u64::from_ne_bytes(span.load(8)), 4);
    }

    #[test]
    #[should_panic(expected = "a word of 2 bytes at 15")]
    fn a_word_beyond_the_end_is_refused() {
        span(&mut [0; 2]).release(15, 1u16);
    }

    #[test]
    #[should_panic(expected = "a word of 8 bytes at 4")]
    fn a_word_astride_is_refused() {
        span(&mut [0; 2]).release(4, 1u64);
    }
}
