//! Asking for a cache line before it is used.
//!
//! One of the homes of `unsafe`: the hint is an intrinsic, which touches nothing.

use crate::Span;

impl Span {
    /// Has the processor fetch the first byte's cache line, to be read soon. A hint: without it the same
    /// happens later.
    #[inline]
    pub fn will_read(self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch does not fault, whatever the address, and changes nothing that can be seen.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.as_ptr().cast()) };
        }
    }

    /// As [`Span::will_read`], of the last byte, to be written soon.
    #[inline]
    pub fn will_write_last(self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let last = self.as_ptr().wrapping_add(self.len().saturating_sub(1));
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(last.cast()) };
        }
    }
}
