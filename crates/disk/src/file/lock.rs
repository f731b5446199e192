//! An image belongs to one writer: byte-range locks, the ones that QEMU takes, so that each keeps off
//! what the other uses.
//!
//! Every user of an image holds shared locks that never collide: one byte for each thing it does
//! ([`DOES`] and on), one for each thing it lets nobody else do ([`FORBIDS`] and on). It takes its
//! own first and then looks at those of the others: of two that come at the same time, one sees the
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
//! So two that write exclude each other, whoever they are, and so do a writer and one of us, even one
//! that only reads: a guest does not expect its disk to change under its page cache.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use pollux_memory::file::{is_locked_by_others, lock_shared, unlock};
use rustix::io::Errno;
use tracing::warn;

use crate::{Access, OpenError};

/// The first of the bytes that say what their holder does.
const DOES: u32 = 100;
/// The first of the bytes that say what their holder lets nobody else do.
const FORBIDS: u32 = 200;
const ALL: RangeInclusive<u32> = DOES..=FORBIDS + 63;

// Bits of QEMU's permissions; number 2 is a write that changes nothing, which nobody minds.
const READ: u32 = 0;
const WRITE: u32 = 1;
const RESIZE: u32 = 3;

/// How long an image may stay locked by nobody. The kernel closes the files of an `io_uring` some time
/// *after* their process is gone (0.03 to 0.2 s were seen when one was killed), and whoever starts that
/// process anew comes sooner.
const LINGERS: Duration = Duration::from_secs(2);
/// How long a device may be busy for somebody who has not locked it.
const LETS_GO: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Keeps an image locked until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks `file`, which was opened at `path`, for such access. Where the file system has no such
    /// locks, that is said and the image used unprotected.
    ///
    /// # Errors
    ///
    /// [`OpenError::InUse`], and what the machine lacks.
    pub fn take(file: &File, path: &Path, access: Access) -> Result<Self, OpenError> {
        let failed = |source: io::Error| OpenError::Io {
            doing: "lock",
            path: path.to_owned(),
            source,
        };
        match claim(file, access) {
            Ok(None) => {}
            Ok(Some(Claimed { conflict, holder })) => {
                return Err(OpenError::InUse {
                    path: path.to_owned(),
                    access,
                    conflict,
                    holder,
                });
            }
            Err(error) if has_no_locks(error) => warn!(
                path = %path.display(), %error,
                "this file cannot be locked: see to it that nobody else writes it"
            ),
            Err(error) => return Err(failed(error.into())),
        }
        file.try_clone().map(Self).map_err(failed)
    }
}

/// The descriptor alone would do, if it were the last. But the kernel may keep the open file a little
/// longer: see [`LINGERS`].
impl Drop for Lock {
    fn drop(&mut self) {
        // It can fail only where there are no such locks.
        let _ = unlock(&self.0, ALL);
    }
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
        Lock::take(&file, path, access)?;
    }
    let started = Instant::now();
    loop {
        match open() {
            Err(Errno::BUSY) if started.elapsed() < LETS_GO => thread::sleep(LOOK_EVERY),
            opened => return Ok(opened),
        }
    }
}

/// Takes the bytes for such access, then looks at those of the others. `None`: nobody is in the way.
fn claim(file: &File, access: Access) -> Result<Option<Claimed>, Errno> {
    let does: &[u32] = match access {
        Access::ReadOnly => &[READ],
        Access::ReadWrite => &[READ, WRITE],
    };
    let forbids = [WRITE, RESIZE];
    let claimed = |byte| Claimed {
        conflict: Conflict::of(byte),
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
    until_told(|| {
        for &byte in &bytes {
            if is_locked_by_others(file, byte)? {
                return Ok(Some(claimed(byte)));
            }
        }
        Ok(None)
    })
}

/// Looks until nothing is in the way, or somebody is; or what is in the way has belonged to nobody for
/// too long.
fn until_told(
    mut look: impl FnMut() -> Result<Option<Claimed>, Errno>,
) -> Result<Option<Claimed>, Errno> {
    let started = Instant::now();
    loop {
        match look()? {
            Some(Claimed { holder: None, .. }) if started.elapsed() < LINGERS => {
                thread::sleep(LOOK_EVERY);
            }
            told => return Ok(told),
        }
    }
}

/// Whoever else has locked `byte` of `file`, as far as we may look: the locks themselves do not say.
fn holder(file: &File, byte: u32) -> Option<Holder> {
    let image = file.metadata().ok()?;
    let own = (std::process::id(), file.as_raw_fd());
    let holds = |pid, fd| (pid, fd) != own && holds(pid, fd, &image, byte);
    let pid = numbers("/proc").find(|&pid| {
        let mut fds = numbers(&format!("/proc/{pid}/fd"));
        fds.any(|fd| holds(pid, fd))
    });
    pid.map(Holder::of)
}

/// The entries of a folder that are numbers; none where we may not look.
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

/// Is `line` of a `fdinfo` a lock that covers `byte`? They look like this:
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

/// Why an image cannot be used beside its other user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The other writes it.
    Writes,
    /// The other is changing its size.
    Resizes,
    /// The other lets nobody else do what we want to do.
    Forbids,
}

impl Conflict {
    const fn of(byte: u32) -> Self {
        match byte.checked_sub(DOES) {
            Some(WRITE) => Self::Writes,
            Some(RESIZE) => Self::Resizes,
            _ => Self::Forbids,
        }
    }

    /// What the other does.
    pub(crate) const fn told(self, access: Access) -> &'static str {
        match (self, access) {
            (Self::Writes, _) => "has it open for writing",
            (Self::Resizes, _) => "is changing its size",
            (Self::Forbids, Access::ReadWrite) => "has it open and lets nobody else write it",
            (Self::Forbids, Access::ReadOnly) => "has it open for itself alone",
        }
    }

    /// What to do.
    pub(crate) const fn remedy(self, access: Access) -> &'static str {
        match (self, access) {
            (Self::Writes | Self::Resizes, Access::ReadWrite) => {
                "end that first, as two that write one disk destroy it"
            }
            (Self::Writes | Self::Resizes, Access::ReadOnly) => {
                "end that first, as what it writes would change the disk under its reader"
            }
            (Self::Forbids, Access::ReadWrite) => "end that first, or open the disk read-only",
            (Self::Forbids, Access::ReadOnly) => "end that first",
        }
    }
}

/// A process that uses an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as the kernel keeps it: at most 15 bytes.
    pub name: String,
}

impl Holder {
    fn of(pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            name: name.trim_end().to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid)?,
            name => write!(f, "process {} ({name})", self.pid)?,
        }
        if self.pid == std::process::id() {
            f.write_str(", which is this one,")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::file::Cache;
    use crate::{File as Disk, Options};

    const WE_WRITE: Access = Access::ReadWrite;
    const WE_READ: Access = Access::ReadOnly;

    fn image() -> tempfile::NamedTempFile {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        image
    }

    fn open(path: &Path, access: Access) -> Result<Disk, OpenError> {
        let options = Options {
            read_only: access == Access::ReadOnly,
            ..Options::default()
        };
        Disk::open(path, Cache::Writeback, &options)
    }

    fn told(path: &Path, access: Access) -> String {
        open(path, access).unwrap_err().to_string()
    }

    /// The image as another user has it open, who has locked such bytes.
    fn other(path: &Path, bytes: &[u32]) -> File {
        let file = File::open(path).unwrap();
        for &byte in bytes {
            lock_shared(&file, byte..=byte).unwrap();
        }
        file
    }

    #[test]
    fn one_writer_or_any_number_of_readers() {
        let image = image();
        let path = image.path();
        let writer = open(path, WE_WRITE).unwrap();
        for access in [WE_WRITE, WE_READ] {
            let told = told(path, access);
            let who = format!("in use: process {} (", std::process::id());
            assert!(told.contains(&who), "{told}");
            assert!(
                told.contains("which is this one, has it open for writing; end that first"),
                "{told}"
            );
        }
        drop(writer);
        let readers = [open(path, WE_READ).unwrap(), open(path, WE_READ).unwrap()];
        let told = told(path, WE_WRITE);
        assert!(told.contains("lets nobody else write it"), "{told}");
        assert!(told.ends_with("or open the disk read-only"), "{told}");
        drop(readers);
        open(path, WE_WRITE).unwrap();
    }

    #[test]
    fn what_others_do_and_forbid_is_respected() {
        // Who, as QEMU locks it, and whether we may read or write beside it.
        let table: [(&str, &[u32], bool, bool); 8] = [
            ("nobody", &[], true, true),
            ("qemu-img info", &[100], true, true),
            ("a machine that reads", &[100, 201], true, false),
            ("a machine that writes", &[100, 101, 201], false, false),
            ("qemu-storage-daemon that writes", &[100, 101], false, false),
            ("qemu-img resize", &[100, 101, 103], false, false),
            ("somebody who changes the size only", &[103], false, false),
            ("somebody who lets nobody read", &[200], false, false),
        ];
        for (who, bytes, reads, writes) in table {
            let image = image();
            let other = other(image.path(), bytes);
            assert_eq!(open(image.path(), WE_READ).is_ok(), reads, "{who}");
            assert_eq!(open(image.path(), WE_WRITE).is_ok(), writes, "{who}");
            drop(other);
            open(image.path(), WE_WRITE).unwrap();
        }
    }

    #[test]
    fn others_see_what_we_do_and_forbid() {
        let seen = |access| {
            let image = image();
            let _disk = open(image.path(), access).unwrap();
            let other = File::open(image.path()).unwrap();
            ALL.filter(|&byte| is_locked_by_others(&other, byte) == Ok(true))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(WE_WRITE), [100, 101, 201, 203]);
        assert_eq!(seen(WE_READ), [100, 201, 203]);
    }

    #[test]
    fn a_lock_ends_when_it_is_dropped_although_the_open_file_lives_on() {
        let image = image();
        let file = File::options()
            .read(true)
            .write(true)
            .open(image.path())
            .unwrap();
        let lock = Lock::take(&file, image.path(), WE_WRITE).unwrap();
        assert!(open(image.path(), WE_WRITE).is_err());
        drop(lock);
        open(image.path(), WE_WRITE).unwrap();
    }

    #[test]
    fn what_belongs_to_nobody_is_waited_for_and_what_belongs_to_somebody_is_not() {
        let claimed = |holder| Claimed {
            conflict: Conflict::Writes,
            holder,
        };
        let mut looks = 0;
        let ended = until_told(|| {
            looks += 1;
            Ok((looks < 3).then(|| claimed(None)))
        });
        assert_eq!((ended, looks), (Ok(None), 3));
        let (mut looks, somebody) = (0, claimed(Some(Holder::of(1))));
        let told = until_told(|| {
            looks += 1;
            Ok(Some(somebody.clone()))
        });
        assert_eq!((told, looks), (Ok(Some(somebody)), 1));
    }

    #[test]
    fn a_device_that_is_let_go_is_opened_and_one_that_is_not_stays_busy() {
        let image = image();
        let tries = Cell::new(0);
        let open = |busy| {
            tries.set(tries.get() + 1);
            if tries.get() <= busy {
                return Err(Errno::BUSY);
            }
            Ok(image.reopen().unwrap())
        };
        let opened = |busy| open_busy(image.path(), WE_WRITE, || open(busy)).unwrap();
        assert!(opened(3).is_ok());
        assert_eq!(tries.get(), 4);
        assert_eq!(opened(u32::MAX).err(), Some(Errno::BUSY));
        let _other = other(image.path(), &[100, 101]);
        let named = open_busy(image.path(), WE_WRITE, || unreachable!("it is in use"));
        assert!(matches!(named, Err(OpenError::InUse { .. })));
    }

    #[test]
    fn locks_are_read_as_the_kernel_prints_them() {
        let line = "lock:\t1: OFDLCK  ADVISORY  READ -1 fe:00:9994247 100 101";
        let covered = |line: &str| {
            (98..=103)
                .filter(|&byte| covers(line, byte))
                .collect::<Vec<_>>()
        };
        assert_eq!(covered(line), [100, 101]);
        assert_eq!(covered(&line.replace("101", "EOF")), [100, 101, 102, 103]);
        for other in ["pos:\t100", "lock:", "lock: 1: 2 x y", ""] {
            assert!(covered(other).is_empty(), "{other:?}");
        }
    }
}
