//! Memory that the kernel pins once instead of for each transfer.

use std::io;
use std::sync::Arc;

use io_uring::IoUring;
use rustix::io::Errno;

use super::Ring;
use crate::Span;

/// The registered buffers of a [`Ring`]: numbered slots, empty at first.
///
/// A registered span is in memory to the last page, whether it was ever touched or not, and cannot be
/// swapped out until it is taken out again.
#[derive(Clone)]
pub struct Buffers(Arc<IoUring>);

impl Buffers {
    /// How many slots there are.
    pub const SLOTS: u16 = 1024;

    /// The longest span one slot takes, in bytes: a limit of the kernel.
    pub const LONGEST: usize = 1 << 30;

    /// Are these the buffers of the same ring?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Puts `span` into slot `index`, or with `None` takes out what is there. Transfers that the ring is
    /// started with from now on may name the slot; those that name what was there have ended.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the limit on locked memory (`RLIMIT_MEMLOCK`) or the memory itself does not suffice;
    /// `EINVAL` where there is no such slot, or the span is too long.
    pub fn set(&self, index: u16, span: Option<Span>) -> Result<(), Errno> {
        let (base, len) = span.map_or((std::ptr::null_mut(), 0), |span| {
            (span.as_ptr(), span.len())
        });
        let list = [libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        }];
        // SAFETY: the kernel pins the pages, and keeps those that it has pinned whatever becomes of their
        // addresses. What it writes there is written by transfers, whose memory is lent (`Ring::queue`).
        let set = unsafe {
            self.0
                .submitter()
                .register_buffers_update(index.into(), &list, None)
        };
        set.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl Ring {
    /// Makes room for registered buffers. Once only.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` the second time.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let slots = Buffers::SLOTS.into();
        self.uring.submitter().register_buffers_sparse(slots)?;
        Ok(Buffers(Arc::clone(&self.uring)))
    }
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").finish_non_exhaustive()
    }
}
