//! Requests in flight: what librbd is called with, and what it calls back with.
#![expect(
    unsafe_code,
    reason = "memory that was lent to a channel is lent on to librbd"
)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pollux_disk::inbox::Address;
use pollux_disk::{Completion, Failure, Op, Ticket, Unmap};
use pollux_memory::Spans;
use rustix::io::Errno;

use crate::error::errno;
use crate::image::Opened;
use crate::library::{Handle, Rbd};

/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`
const KEEP_ALLOCATED: c_int = 1;

/// A place for one request at a time, of which librbd gives the callback the address.
pub struct Flight {
    /// What the inbox is told: the number of this place.
    number: u64,
    /// Where its end is told.
    address: Address,
    rbd: &'static Rbd,
    /// How many bytes a read has to bring; 0 for anything else. Set before it starts.
    expected: AtomicUsize,
}

impl Flight {
    pub fn new(number: u64, address: Address, image: &Opened) -> Arc<Self> {
        Arc::new(Self {
            number,
            address,
            rbd: &image.ceph().rbd,
            expected: AtomicUsize::new(0),
        })
    }

    /// Starts `op` on `image`; the end is told to the address. It has bytes, or is a flush.
    ///
    /// # Errors
    ///
    /// Where it does not start, and nothing is told.
    ///
    /// # Safety
    ///
    /// The memory and the list of spans that `op` names stay until the end has been told. Nothing else of this place is
    /// in flight.
    pub unsafe fn start(self: &Arc<Self>, image: &Opened, op: &Op) -> Result<(), Failure> {
        let expected = match op {
            Op::Read { into, .. } => usize::try_from(into.bytes()).unwrap_or(usize::MAX),
            _ => 0,
        };
        // Before it starts, which librbd's locks order before the callback.
        self.expected.store(expected, Ordering::Relaxed);
        let mut completion: Handle = ptr::null_mut();
        let lent = Arc::into_raw(Arc::clone(self));
        let create = self.rbd.rbd_aio_create_completion;
        // SAFETY: `ended` takes what it is called back with for such an `Arc`, once.
        let created = unsafe { create(lent.cast_mut().cast(), ended, &raw mut completion) };
        let started = if created < 0 {
            created
        } else {
            // SAFETY: as the caller promises.
            unsafe { self.hand_over(image.handle(), op, completion) }
        };
        if started < 0 {
            if created >= 0 {
                // SAFETY: librbd has not taken it, and will not call back.
                unsafe { (self.rbd.rbd_aio_release)(completion) };
            }
            // SAFETY: as it was made above; no other takes it.
            drop(unsafe { Arc::from_raw(lent) });
            return Err(failure(errno(started)));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`Flight::start`].
    unsafe fn hand_over(&self, image: Handle, op: &Op, completion: Handle) -> c_int {
        let rbd = self.rbd;
        let list = |spans: &Spans| c_int::try_from(spans.len()).unwrap_or(c_int::MAX);
        match *op {
            Op::Read { at, into } => {
                // SAFETY: a span is laid out as an iovec; list and memory stay until the callback.
                unsafe { (rbd.rbd_aio_readv)(image, into.as_ptr(), list(&into), at, completion) }
            }
            Op::Write { at, from, .. } => {
                // SAFETY: as for a read.
                unsafe { (rbd.rbd_aio_writev)(image, from.as_ptr(), list(&from), at, completion) }
            }
            // SAFETY: nothing is lent.
            Op::Flush => unsafe { (rbd.rbd_aio_flush)(image, completion) },
            // SAFETY: nothing is lent.
            Op::Discard { at, len } => unsafe { (rbd.rbd_aio_discard)(image, at, len, completion) },
            Op::WriteZeroes { at, len, unmap, .. } => {
                let (Some(zero), Ok(len)) = (rbd.rbd_aio_write_zeroes, usize::try_from(len)) else {
                    return -Errno::NOTSUP.raw_os_error();
                };
                let flags = match unmap {
                    Unmap::Allowed => 0,
                    Unmap::Forbidden => KEEP_ALLOCATED,
                };
                // SAFETY: nothing is lent.
                unsafe { zero(image, at, len, completion, flags, 0) }
            }
        }
    }

    fn outcome(&self, returned: isize) -> Result<(), Failure> {
        if returned < 0 {
            let returned = i32::try_from(returned).unwrap_or(i32::MIN);
            return Err(failure(errno(returned)));
        }
        // A read of an image that others have made smaller returns less, and leaves the rest of the memory as it was.
        let short = returned.unsigned_abs() < self.expected.load(Ordering::Relaxed);
        if short {
            Err(Failure::OutOfRange)
        } else {
            Ok(())
        }
    }
}

/// What an error of the cluster is to the owner of the request.
fn failure(error: Errno) -> Failure {
    match error {
        // Shut out, when another client took over the lock.
        Errno::SHUTDOWN => Failure::Lost,
        Errno::NOTSUP => Failure::Unsupported,
        error => Failure::Io(error),
    }
}

/// librbd says on one of its threads that a request has ended.
extern "C" fn ended(completion: Handle, flight: *mut c_void) {
    // SAFETY: what `start` lent, given back once.
    let flight = unsafe { Arc::from_raw(flight.cast_const().cast::<Flight>()) };
    // SAFETY: the completion of this callback, which has ended.
    let returned = unsafe { (flight.rbd.rbd_aio_get_return_value)(completion) };
    // SAFETY: as above; it is not used after this.
    unsafe { (flight.rbd.rbd_aio_release)(completion) };
    let result = flight.outcome(returned);
    let ticket = Ticket(flight.number);
    // A burst of them finds an owner awake, and wakes it once. An owner that polls on the processor of librbd's threads
    // gets the ends one by one, and these threads wake up for each request.
    flight
        .address
        .deliver_from_outside(Completion { ticket, result });
}
