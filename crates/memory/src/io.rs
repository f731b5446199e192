//! Files read straight into spans and written straight from them.
//!
//! One of the homes of `unsafe`: the safe wrappers of these system calls take slices, and no slice
//! may be formed over memory that a peer writes.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::io::Errno;

use crate::Span;

/// How many spans one call takes at most; those beyond are left to the next.
pub const MAX_SPANS: usize = 1024;

/// Fills `into` from `file` at byte `at`, with one system call.
///
/// Returns how many bytes it read: less than asked for at the end of the file, beyond [`MAX_SPANS`],
/// and wherever the kernel sees fit.
///
/// # Errors
///
/// What `preadv` says, `EINTR` aside; `EFAULT` where the peer has taken its memory away.
pub fn read_at(file: impl AsFd, into: &[Span], at: u64) -> Result<usize, Errno> {
    transfer(Flow::FromFile, file, into, at, 0)
}

/// As [`read_at`], but never waits: reads what the page cache holds (`RWF_NOWAIT`).
///
/// # Errors
///
/// `EAGAIN` where the first byte would have to be waited for; `EOPNOTSUPP` where the file cannot tell, as
/// on tmpfs.
pub fn try_read_at(file: impl AsFd, into: &[Span], at: u64) -> Result<usize, Errno> {
    transfer(Flow::FromFile, file, into, at, libc::RWF_NOWAIT)
}

/// Writes `from` to `file` at byte `at`, with one system call.
///
/// Returns how many bytes it wrote; reasons for less than asked for are as in [`read_at`].
///
/// # Errors
///
/// What `pwritev` says, `EINTR` aside; `EFAULT` where the peer has taken its memory away.
pub fn write_at(file: impl AsFd, from: &[Span], at: u64) -> Result<usize, Errno> {
    transfer(Flow::ToFile, file, from, at, 0)
}

/// As [`write_at`], but never waits: not for memory, not for a lock, not for the storage.
///
/// # Errors
///
/// `EAGAIN` where it would have to be waited for; `EOPNOTSUPP` where the file cannot tell.
pub fn try_write_at(file: impl AsFd, from: &[Span], at: u64) -> Result<usize, Errno> {
    transfer(Flow::ToFile, file, from, at, libc::RWF_NOWAIT)
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A read: from the file into memory.
    FromFile,
    /// A write: from memory into the file.
    ToFile,
}

#[inline]
fn transfer(
    flow: Flow,
    file: impl AsFd,
    spans: &[Span],
    at: u64,
    flags: libc::c_int,
) -> Result<usize, Errno> {
    let file = file.as_fd().as_raw_fd();
    let at = libc::off64_t::try_from(at).map_err(|_| Errno::OVERFLOW)?;
    loop {
        let moved = match (spans, flags) {
            ([span], 0) => transfer_one(flow, file, *span, at),
            _ => transfer_many(flow, file, spans, at, flags),
        };
        match usize::try_from(moved) {
            Ok(moved) => return Ok(moved),
            Err(_) => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
        }
    }
}

/// One span without a list: 5 % less for 4 KiB on tmpfs.
fn transfer_one(flow: Flow, file: RawFd, span: Span, at: libc::off64_t) -> libc::ssize_t {
    let (base, len) = (span.as_ptr(), span.len());
    match flow {
        // SAFETY: the bytes are mapped for as long as the request they are lent to (`Span::new`), whose part
        // this call is. No reference to them exists; the kernel copies them, or fails with EFAULT.
        Flow::FromFile => unsafe { libc::pread64(file, base.cast(), len, at) },
        // SAFETY: as for a read.
        Flow::ToFile => unsafe { libc::pwrite64(file, base.cast(), len, at) },
    }
}

fn transfer_many(
    flow: Flow,
    file: RawFd,
    spans: &[Span],
    at: libc::off64_t,
    flags: libc::c_int,
) -> libc::ssize_t {
    const _: () = assert!(
        size_of::<Span>() == size_of::<libc::iovec>(),
        "a span is laid out like an iovec"
    );
    let list = spans.as_ptr().cast();
    let count = i32::try_from(spans.len().min(MAX_SPANS)).expect("MAX_SPANS is an i32");
    match flow {
        // SAFETY: `count` spans lie there, laid out as iovecs, each as in `transfer_one`.
        Flow::FromFile => unsafe { libc::preadv64v2(file, list, count, at, flags) },
        // SAFETY: as for a read.
        Flow::ToFile => unsafe { libc::pwritev64v2(file, list, count, at, flags) },
    }
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error())
        .expect("the last error of the system has a number")
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    fn span(bytes: &mut [u8]) -> Span {
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the tests below keep `bytes` and do not touch it while the span is in use.
        unsafe { Span::new(base, bytes.len()) }
    }

    #[test]
    fn spans_are_gathered_and_scattered() {
        let file = tempfile::tempfile().unwrap();
        let (mut a, mut b) = (*b"hello ", *b"world");
        let from = [span(&mut a), span(&mut b)];
        assert_eq!(write_at(&file, &from, 3), Ok(11));
        let (mut c, mut d) = ([0; 2], [0; 20]);
        let into = [span(&mut c), span(&mut d)];
        assert_eq!(
            read_at(&file, &into, 3),
            Ok(11),
            "less at the end of the file"
        );
        assert_eq!((&c, &d[..9]), (b"he", b"llo world".as_slice()));
    }

    #[test]
    fn more_spans_than_the_kernel_takes_are_a_short_transfer() {
        let file = tempfile::tempfile().unwrap();
        let mut byte = [7];
        let from = vec![span(&mut byte); MAX_SPANS + 1];
        assert_eq!(write_at(&file, &from, 0), Ok(MAX_SPANS));
    }

    #[test]
    fn what_need_not_be_waited_for_is_moved_and_the_rest_is_said() {
        let file = tempfile::tempfile().unwrap();
        let mut bytes = *b"cached";
        let spans = [span(&mut bytes)];
        write_at(&file, &spans, 0).unwrap();
        for moved in [
            try_read_at(&file, &spans, 0),
            try_write_at(&file, &spans, 0),
        ] {
            let refused = matches!(moved, Err(Errno::AGAIN | Errno::OPNOTSUPP));
            assert!(moved == Ok(6) || refused, "{moved:?}");
        }
        assert_eq!(&bytes, b"cached");
    }

    #[test]
    fn an_error_of_the_system_is_told() {
        let file = std::fs::File::open("/").unwrap();
        let mut byte = [0];
        let spans = [span(&mut byte)];
        assert_eq!(read_at(&file, &spans, 0), Err(Errno::ISDIR));
        assert_eq!(write_at(&file, &spans, 0), Err(Errno::BADF));
        assert_eq!(read_at(&file, &spans, u64::MAX), Err(Errno::OVERFLOW));
    }
}
