//! What a file can do that no safe crate offers: locks on ranges of bytes, and discarding on a device.
//!
//! One of the homes of `unsafe`: each function is one system call.

use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// Locks `bytes` of `file` together with all others that do: a shared lock.
///
/// Such a lock (`F_OFD_SETLK`) belongs to the open file, not to the process: it is shared with every
/// duplicate of the descriptor, and ends with [`unlock`] or with the last of them. The bytes need not
/// exist.
///
/// # Errors
///
/// `EAGAIN` where another has locked them for itself alone; `ENOLCK`, `EINVAL` and others where the
/// file system, or the kernel, has no such locks.
pub fn lock_shared(file: impl AsFd, bytes: RangeInclusive<u32>) -> Result<(), Errno> {
    fcntl(
        file.as_fd(),
        libc::F_OFD_SETLK,
        &mut wish(libc::F_RDLCK, bytes),
    )
}

/// Takes [`lock_shared`] back.
///
/// # Errors
///
/// None in practice: bytes that are not locked can be unlocked.
pub fn unlock(file: impl AsFd, bytes: RangeInclusive<u32>) -> Result<(), Errno> {
    fcntl(
        file.as_fd(),
        libc::F_OFD_SETLK,
        &mut wish(libc::F_UNLCK, bytes),
    )
}

/// Is `byte` of `file` locked, in whatever way, through another open file description?
///
/// # Errors
///
/// As [`lock_shared`].
pub fn is_locked_by_others(file: impl AsFd, byte: u32) -> Result<bool, Errno> {
    let mut answer = wish(libc::F_WRLCK, byte..=byte);
    fcntl(file.as_fd(), libc::F_OFD_GETLK, &mut answer)?;
    Ok(i32::from(answer.l_type) != libc::F_UNLCK)
}

/// Is `byte` of `file` locked through its own open file description, and no other: by this process, or by another one
/// that has a duplicate of the descriptor?
///
/// # Errors
///
/// As [`lock_shared`].
pub fn is_locked_through(file: impl AsFd, byte: u32) -> Result<bool, Errno> {
    let is_locked = || {
        // Locks of a process collide with those of every open file description.
        let mut answer = wish(libc::F_WRLCK, byte..=byte);
        fcntl(file.as_fd(), libc::F_GETLK, &mut answer)?;
        Ok(i32::from(answer.l_type) != libc::F_UNLCK)
    };
    // Once more at the end: another may have let go in between.
    Ok(is_locked()? && !is_locked_by_others(&file, byte)? && is_locked()?)
}

fn wish(kind: libc::c_int, bytes: RangeInclusive<u32>) -> libc::flock64 {
    libc::flock64 {
        l_type: libc::c_short::try_from(kind).expect("lock types are small"),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).expect("it is 0"),
        l_start: (*bytes.start()).into(),
        l_len: i64::from(*bytes.end()) - i64::from(*bytes.start()) + 1,
        // Asked for by locks that belong to no process; the others are only asked about.
        l_pid: 0,
    }
}

fn fcntl(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    lock: &mut libc::flock64,
) -> Result<(), Errno> {
    loop {
        // SAFETY: the descriptor is open while it is borrowed, and all these commands take a `flock64`,
        // which is ours alone until the call returns.
        let failed = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } != 0;
        match failed.then(crate::io::last_error) {
            None => return Ok(()),
            Some(Errno::INTR) => {}
            Some(error) => return Err(error),
        }
    }
}

/// Tells the block device `device` that it may forget `len` bytes from `at`: they read as anything.
///
/// # Errors
///
/// `EOPNOTSUPP` where it cannot; `EINVAL` where the range is not made of whole logical blocks.
pub fn discard_blocks(device: impl AsFd, at: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);
    // SAFETY: the command takes a pointer to two u64, from and length, and only reads them; on a
    // file that is no block device it is not known, and fails.
    let discard = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([at, len]) };
    // SAFETY: what it changes is on the device, not in memory that Rust knows of.
    unsafe { ioctl(device, discard) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_lock_belongs_to_the_open_file_and_ends_with_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let (one, other) = (open(), open());
        lock_shared(&one, 100..=101).unwrap();
        lock_shared(&other, 100..=100).unwrap();
        assert_eq!(is_locked_by_others(&one, 100), Ok(true));
        assert_eq!(is_locked_by_others(&one, 101), Ok(false), "only by itself");
        assert_eq!(is_locked_by_others(&other, 101), Ok(true));
        assert_eq!(is_locked_by_others(&other, 102), Ok(false));
        let duplicate = one.try_clone().unwrap();
        assert_eq!(is_locked_through(&duplicate, 101), Ok(true));
        assert_eq!(is_locked_through(&other, 101), Ok(false), "by another");
        assert_eq!(is_locked_through(&one, 102), Ok(false), "by none");
        drop(one);
        assert_eq!(is_locked_by_others(&other, 101), Ok(true));
        unlock(&duplicate, 101..=101).unwrap();
        assert_eq!(is_locked_by_others(&other, 101), Ok(false));
        assert_eq!(is_locked_by_others(&other, 100), Ok(true));
        drop(duplicate);
        assert_eq!(is_locked_by_others(&other, 100), Ok(false));
    }

    #[test]
    fn what_is_no_block_device_discards_no_blocks() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(discard_blocks(&file, 0, 4096), Err(Errno::NOTTY));
    }
}
