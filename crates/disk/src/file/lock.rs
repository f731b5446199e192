//! An image belongs to one writer: byte-range locks, the ones that QEMU takes, so that each keeps off
//! what the other uses.
//!
//! Every user of an image holds shared locks that never collide: one byte for each thing it does
//! ([`DOES`] and on), one for each thing it lets no other do ([`FORBIDS`] and on). It takes its
//! own first and then reads those of the others: of two that come at the same time, one sees the
//! other, or both do. (QEMU, `docs/system/images.rst` and `block/file-posix.c`; found in
//! `/proc/locks` under QEMU 7.2 and 10.0.)
//!
//! | | does | forbids |
//! |---|---|---|
//! | we, read-write | read, write | write, resize |
//! | we, read-only | read | write, resize |
//! | QEMU's virtual machine | the same | write |
//! | qemu-storage-daemon, qemu-img, qemu-io | the same | nothing |
//!
//! So two programs that write exclude each other, and so do a writer and one of us, even one
//! that only reads: a guest does not expect its disk to change under its page cache.

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use pollux_memory::file::{is_locked_by_others, is_locked_through, lock_shared, unlock};
use pollux_threads::{is_ending, once_let_go};
use rustix::io::Errno;
use tracing::warn;

use super::users::{Conflict, Holder};
use crate::{Access, OpenError};

/// The first of the bytes that say what their holder does.
const DOES: u32 = 100;
/// The first of the bytes that say what their holder lets no other do.
const FORBIDS: u32 = 200;
const ALL: RangeInclusive<u32> = DOES..=FORBIDS + 63;

// Bits of QEMU's permissions; number 2 is a write that changes nothing, which harms no one.
const READ: u32 = 0;
const WRITE: u32 = 1;
const RESIZE: u32 = 3;

/// How long an image may stay locked without a holder. The kernel closes the files of a process some time after it was
/// killed: 0.03 to 0.06 s were seen, and with an `io_uring` up to 0.2 s, most of it when the process is gone. A
/// supervisor that starts it anew comes sooner.
pub const LINGERS: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Keeps an image locked until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks `file`, which was opened at `path`, for such access. Where the file system has no such
    /// locks, that is said and the image used unprotected. A lock that belongs to no process is waited for
    /// as long as `patience`. Nothing stays locked where this fails, but for what was.
    ///
    /// # Errors
    ///
    /// [`OpenError::InUse`], and what the machine lacks.
    pub fn take(
        file: &File,
        path: &Path,
        access: Access,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let failed = |source: io::Error| OpenError::Io {
            doing: "lock",
            path: path.to_owned(),
            source,
        };
        let in_use = |Claimed { conflict, holder }| OpenError::InUse {
            path: path.to_owned(),
            access,
            conflict,
            holder,
        };
        // First, as the locks are shared then: those that were taken here would be let go for both users.
        if let Some(claimed) = claimed_through(file) {
            return Err(in_use(claimed));
        }
        let refused = match claim(file, access, patience) {
            Ok(claimed) => claimed.map(in_use),
            Err(error) if has_no_locks(error) => {
                warn!(
                    path = %path.display(), %error,
                    "this file cannot be locked: see to it that no other program writes it"
                );
                None
            }
            Err(error) => Some(failed(error.into())),
        };
        // Not before: a second descriptor of this process would have the same locks, and be taken for their holder.
        let lock = file.try_clone().map(Self).map_err(failed);
        // Dropped, it unlocks what was claimed.
        if lock.is_err() {
            release(file);
        }
        refused.map_or(Ok(()), Err).and(lock)
    }
}

/// The descriptor alone would do, if it were the last. But the kernel may keep the open file a little
/// longer: see [`LINGERS`].
impl Drop for Lock {
    fn drop(&mut self) {
        release(&self.0);
    }
}

fn release(file: &File) {
    // It can fail only where there are no such locks.
    let _ = unlock(file, ALL);
}

/// Opens the device at `path`, which the kernel has called busy. Its user may have locked it, and can
/// be named then; or it has gone, and the kernel lets go of the device a moment later.
///
/// # Errors
///
/// [`OpenError::InUse`]; and inside, what the kernel says in the end.
pub fn open_busy(
    path: &Path,
    access: Access,
    open: impl Fn() -> Result<File, Errno>,
) -> Result<Result<File, Errno>, OpenError> {
    if let Ok(file) = File::open(path) {
        Lock::take(&file, path, access, LINGERS)?;
    }
    Ok(once_let_go(open, |error| *error == Errno::BUSY))
}

/// The open file itself is in use: a descriptor of it was passed twice, or its owner has locked it. Of what others only
/// read as well, that cannot be known.
fn claimed_through(file: &File) -> Option<Claimed> {
    let bytes = [DOES + READ, DOES + WRITE, FORBIDS + WRITE, FORBIDS + RESIZE];
    let byte = bytes
        .into_iter()
        .find(|&byte| is_locked_through(file, byte) == Ok(true))?;
    Some(Claimed {
        conflict: Conflict::Shares,
        holder: holder(file, byte),
    })
}

/// Says that `file` is written, beside others that write it, for as long as it is open: a log. May it be? Where the
/// file system has no locks, it may.
pub fn may_append(file: &File) -> Result<bool, Errno> {
    let byte = DOES + WRITE;
    let forbidden =
        lock_shared(file, byte..=byte).and_then(|()| is_locked_by_others(file, FORBIDS + WRITE));
    match forbidden {
        Err(error) if has_no_locks(error) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        forbidden => Ok(!forbidden?),
    }
}

/// Takes the bytes for such access, then reads those of the others. `None`: no other is in the way.
fn claim(file: &File, access: Access, patience: Duration) -> Result<Option<Claimed>, Errno> {
    let does: &[u32] = match access {
        Access::ReadOnly => &[READ],
        Access::ReadWrite => &[READ, WRITE],
    };
    let forbids = [WRITE, RESIZE];
    let claimed = |byte| Claimed {
        conflict: conflict(byte),
        holder: holder(file, byte),
    };
    let own = does.iter().map(|bit| DOES + bit);
    for byte in own.chain(forbids.map(|bit| FORBIDS + bit)) {
        match lock_shared(file, byte..=byte) {
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(Some(claimed(byte))),
            result => result?,
        }
    }
    // What the others do comes first: it tells best why they are in the way.
    let disturbing = forbids.map(|bit| DOES + bit);
    let forbidden = does.iter().map(|bit| FORBIDS + bit);
    let bytes: Vec<u32> = disturbing.into_iter().chain(forbidden).collect();
    until_told(patience, || {
        for &byte in &bytes {
            if is_locked_by_others(file, byte)? {
                return Ok(Some(claimed(byte)));
            }
        }
        Ok(None)
    })
}

/// Looks until nothing is in the way, or a process is; or what is in the way has belonged to no process for
/// as long as `patience`.
fn until_told(
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<Claimed>, Errno>,
) -> Result<Option<Claimed>, Errno> {
    let started = Instant::now();
    loop {
        match look()? {
            Some(Claimed { holder: None, .. }) if started.elapsed() < patience => {
                thread::sleep(LOOK_EVERY);
            }
            told => return Ok(told),
        }
    }
}

/// The other process that has locked `byte` of `file`, as far as we may see: the locks themselves do not say. One that
/// ends holds nothing: it is a matter of time.
fn holder(file: &File, byte: u32) -> Option<Holder> {
    let image = file.metadata().ok()?;
    let own = (std::process::id(), file.as_raw_fd());
    let holds = |pid, fd| (pid, fd) != own && holds(pid, fd, &image, byte);
    let pid = numbers("/proc").find(|&pid| {
        let mut fds = numbers(&format!("/proc/{pid}/fd"));
        fds.any(|fd| holds(pid, fd)) && !is_ending(pid)
    });
    pid.map(Holder::of)
}

/// The entries of a folder that are numbers; none where we may not read it.
fn numbers<N: FromStr>(folder: &str) -> impl Iterator<Item = N> + use<N> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Is the file that process `pid` calls `fd` this `image`, and has it locked `byte`?
fn holds(pid: u32, fd: RawFd, image: &fs::Metadata, byte: u32) -> bool {
    let same = fs::metadata(format!("/proc/{pid}/fd/{fd}"))
        .is_ok_and(|there| (there.dev(), there.ino()) == (image.dev(), image.ino()));
    same && fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))
        .is_ok_and(|info| info.lines().any(|line| covers(line, byte)))
}

/// Is `line` of a `fdinfo` a lock that covers `byte`? Such lines are:
/// `lock: 1: OFDLCK  ADVISORY  READ -1 fe:00:9994247 100 101`, or `EOF` for the last number.
fn covers(line: &str, byte: u32) -> bool {
    let Some(lock) = line.strip_prefix("lock:") else {
        return false;
    };
    let words: Vec<&str> = lock.split_whitespace().collect();
    let [.., first, last] = words[..] else {
        return false;
    };
    let byte = u64::from(byte);
    let end = if last == "EOF" {
        Ok(u64::MAX)
    } else {
        last.parse()
    };
    first.parse().is_ok_and(|first: u64| first <= byte) && end.is_ok_and(|end| byte <= end)
}

fn has_no_locks(error: Errno) -> bool {
    let none = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    none.contains(&error)
}

/// What is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claimed {
    conflict: Conflict,
    holder: Option<Holder>,
}

/// What the holder of a lock on `byte` does or forbids.
const fn conflict(byte: u32) -> Conflict {
    match byte.checked_sub(DOES) {
        Some(WRITE) => Conflict::Writes,
        Some(RESIZE) => Conflict::Resizes,
        _ => Conflict::Forbids,
    }
}

#[cfg(test)]
mod tests;
