//! What a peer's memory turns into when the peer takes it away.
//!
//! A file that was shared and mapped can be truncated later, or be found to have no room for a page
//! that was not touched yet. The kernel then raises SIGBUS in the thread that reaches for the page,
//! which would end the process and with it the sessions of everybody else. (A seal,
//! `F_SEAL_SHRINK`, would forbid the first, but it is the peer's to set, and QEMU does not.)
//!
//! So every region has a [`Guard`], an entry in a list that the handler of SIGBUS walks. Where the fault
//! lies in a region, the handler rings the region's alarm, which ends the session it belongs to, and then puts private
//! zeroes in place of the *whole* region, at the same address. The access is repeated, finds zeroes, and goes on;
//! whatever comes of it concerns the peer alone. A SIGBUS anywhere else goes to the handler that was there before.
//!
//! The page may be the host's fault and not the peer's: its memory has failed, or no huge page is left. Then the peer
//! must not take for done what was done with zeroes. So the alarm rings *before* the zeroes are there: a thread that
//! has read some, or waited for the kernel to read some, and then asks the alarm, is told. (To find a zero it must have
//! come after `mmap` by way of the kernel's locks on the page tables.) Queues ask after a transfer has ended and before
//! they publish it.
//!
//! Why this is sound:
//!
//! - *Nothing but copies and atomics touches a region* (see [`Span`](crate::Span)), from which the
//!   peer may expect any value at any moment: that all of it becomes zeroes between two instructions is
//!   one more thing that it might have done. An interrupted copy is begun again by the processor where it
//!   stopped; an interrupted atomic has not happened.
//! - *The region outlives the handler.* It runs on the thread that made the access, and the code that makes
//!   one keeps the region mapped, by the promise made to `Span::new`. So the entry that matches
//!   stays what it is, its alarm exists, and the address range that is mapped anew is the region's and
//!   no other's. An entry that changes under the handler's eyes belongs to another region, and is passed
//!   over.
//! - *No entry is stale.* A guard leaves the list before its region is unmapped.
//! - *The handler never waits.* It reads atomics, calls `mmap` and `shutdown`, both of them bare system
//!   calls, and allocates nothing. It never runs between a call of libc and a read of `errno`, as
//!   no copy lies there.
//! - *Accesses of the kernel's own* (`preadv`, `io_uring`) raise no signal: they fail with `EFAULT`, which
//!   fails the request.
//!
//! All of the region goes, not the one page: after the first fault the peer's session is over, a second
//! fault would cost a second signal, and hugetlbfs maps nothing smaller than its pages.

mod entries;
mod handler;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Alarm;
use entries::{Entry, free};

/// Watches over one mapping of a peer's memory, and must go before it does.
pub struct Guard {
    entry: &'static Entry,
    /// Behind the entry's pointer.
    alarm: Option<Arc<Alarm>>,
}

impl Guard {
    /// Watches over the addresses in `region`, which are mapped in multiples of `page` and accessed by
    /// those alone that keep the guard.
    pub fn new(region: &Range<usize>, page: usize) -> Self {
        handler::install();
        let entry = free().take();
        entry.set(region, page);
        Self { entry, alarm: None }
    }

    /// Rings `alarm` when the region is lost; at once, if it is.
    ///
    /// # Panics
    ///
    /// When it has one: the handler may be ringing that.
    pub fn set_alarm(&mut self, alarm: Arc<Alarm>) {
        assert!(self.alarm.is_none(), "a region has one alarm");
        let pointer = Arc::as_ptr(&alarm).cast_mut();
        self.alarm = Some(alarm);
        self.entry.alarm.store(pointer, Ordering::Release);
        if self.is_torn() {
            self.entry.tear();
        }
    }

    pub fn ring_alarm(&self) {
        if let Some(alarm) = &self.alarm {
            alarm.ring();
        }
    }

    pub fn is_torn(&self) -> bool {
        self.entry.torn.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.entry.set(&(0..0), 0);
        free().entries.push(self.entry);
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("region", &self.entry.region())
            .field("torn", &self.is_torn())
            .field("alarm", &self.alarm)
            .finish()
    }
}

#[cfg(test)]
mod tests;
