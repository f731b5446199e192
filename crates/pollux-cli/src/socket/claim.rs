//! The path of a socket of our own: which daemon makes a socket there, and which one removes it.
//!
//! Two daemons must not replace each other's sockets between `bind` and `listen`, and none may remove a socket that
//! another one has made since. So every change of the path is made under `flock` on a file beside it, `PATH.lock`. It
//! is held for the change only: a daemon whose socket was removed by hand does not keep the next one away. The file
//! stays open, as in the sandbox no file can be opened any more, and goes with the socket.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pollux::disk::closed_folder;
use pollux::memory::Peer;
use pollux_threads::is_ending;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::error::SocketError;

/// How often the lock is tried, and the pause between two attempts. All that is done under it takes microseconds,
/// unless a daemon is stopped meanwhile, or one that ends is waited for.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// How long a server that ends may keep its socket: some 50 ms, and longer with much memory.
const LINGERS: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// A file, whatever its name: its device, and its number there.
type Inode = (u64, u64);

/// What lies at `path`, if anything does.
fn inode(path: &Path) -> Option<Inode> {
    let there = fs::symlink_metadata(path).ok()?;
    Some((there.dev(), there.ino()))
}

/// A path that is free for a socket. Nobody else takes it while this lives.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    lock: Lock,
}

/// A path where our socket is. When this is dropped, the socket goes, if it is still ours: which is known by its inode,
/// so the socket has to be open until then, or another file could have that one.
#[derive(Debug)]
pub struct OwnPath {
    path: PathBuf,
    socket: Option<Inode>,
    lock: Lock,
}

impl Claim {
    /// Takes `path`, and removes a socket there on which no server listens any more.
    pub fn of(path: &Path) -> Result<Self, SocketError> {
        let lock = Lock::beside(path)?;
        remove_stale(path)?;
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    /// Our socket is bound there. The lock is still held.
    pub fn bound(self) -> OwnPath {
        OwnPath {
            socket: inode(&self.path),
            path: self.path,
            lock: self.lock,
        }
    }
}

impl OwnPath {
    /// The socket listens: others see that it is alive.
    pub fn release(&mut self) {
        self.lock.release();
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if !self.lock.take() {
            return;
        }
        if self.socket.is_some() && inode(&self.path) == self.socket {
            // Where it cannot be removed, the next daemon finds it stale.
            let _ = fs::remove_file(&self.path);
            self.lock.is_last = true;
        }
    }
}

/// The file beside a socket.
#[derive(Debug)]
struct Lock {
    file: OwnedFd,
    path: PathBuf,
    /// It is held, and no socket needs it: it goes when this is dropped.
    is_last: bool,
}

impl Lock {
    fn beside(socket: &Path) -> Result<Self, SocketError> {
        let mut name = OsString::from(socket);
        name.push(".lock");
        let path = PathBuf::from(name);
        let failed = |error: Errno| match (error, closed_folder(socket)) {
            (Errno::NOENT | Errno::NOTDIR, _) => SocketError::NoDirectory {
                path: socket.to_owned(),
            },
            (Errno::ACCESS, Some(folder)) => SocketError::ClosedFolder {
                path: socket.to_owned(),
                folder: folder.to_owned(),
                source: error.into(),
            },
            _ => SocketError::Lock {
                path: socket.to_owned(),
                lock: path.clone(),
                source: error.into(),
            },
        };
        for _ in 0..ATTEMPTS {
            let Some((file, is_new)) = open_lock(&path).map_err(failed)? else {
                continue;
            };
            let mut lock = Self {
                file,
                path: path.clone(),
                is_last: false,
            };
            match flock(&lock.file, FlockOperation::NonBlockingLockExclusive) {
                // The daemon that held it may have removed it meanwhile.
                Ok(()) if lock.is_there() => {
                    lock.is_last = is_new;
                    return Ok(lock);
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(PAUSE),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(SocketError::Busy {
            path: socket.to_owned(),
            lock: path,
        })
    }

    /// Takes it again.
    fn take(&self) -> bool {
        (0..ATTEMPTS).any(|_| {
            let taken = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if !taken {
                std::thread::sleep(PAUSE);
            }
            taken
        })
    }

    fn release(&mut self) {
        self.is_last = false;
        // It fails for no lock that is held.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    /// Is this the file that others find?
    fn is_there(&self) -> bool {
        let ours = fstat(&self.file);
        ours.is_ok_and(|ours| inode(&self.path) == Some((ours.st_dev, ours.st_ino)))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_last && self.is_there() {
            // One that stays is used again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens or makes the file of a lock. Is it new? `None` where it was removed between the two. What others may have put
/// there is neither followed nor waited for.
fn open_lock(path: &Path) -> Result<Option<(OwnedFd, bool)>, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fresh = flags | OFlags::CREATE | OFlags::EXCL;
    match open(path, fresh, Mode::RUSR | Mode::WUSR) {
        Err(Errno::EXIST) => {}
        opened => return opened.map(|file| Some((file, true))),
    }
    match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => opened.map(|file| Some((file, false))),
    }
}

/// Removes a socket at `path` on which no server listens any more.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    let failed = |source: io::Error| SocketError::Listen {
        path: path.to_owned(),
        source,
    };
    match answer(path) {
        Err(Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "replacing a socket on which no server listens");
            fs::remove_file(path).map_err(failed)
        }
        // Its owner has removed it.
        Err(Errno::NOENT) => Ok(()),
        // A full backlog means a listener, too.
        Ok(()) | Err(Errno::AGAIN) => Err(SocketError::Live(path.to_owned())),
        Err(error) => Err(failed(error.into())),
    }
}

/// Does a server listen there? One that ends is waited for: its socket takes connections until the kernel closes it.
fn answer(path: &Path) -> Result<(), Errno> {
    let connected = knock(path)?;
    if Peer::of(&connected).is_ok_and(|server| server.pid.is_some_and(is_ending)) {
        // The connection ends with it.
        let mut ends = [PollFd::new(&connected, PollFlags::empty())];
        retry_on_intr(|| poll(&mut ends, Some(&LINGERS)))?;
        knock(path)?;
    }
    Ok(())
}

/// Connects, if that is possible at once: a full backlog is not waited for.
fn knock(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::net::listen;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A socket at `path`, and its listener.
    fn serve(path: &Path) -> (OwnPath, UnixListener) {
        let claim = Claim::of(path).unwrap();
        let listener = UnixListener::bind(path).unwrap();
        let mut own = claim.bound();
        own.release();
        (own, listener)
    }

    #[test]
    fn a_socket_and_its_lock_go_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let served = serve(&path);
        assert_eq!(names(folder.path()), ["a.sock", "a.sock.lock"]);
        drop(served);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_claim_that_comes_to_nothing_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        drop(Claim::of(&path).unwrap());
        assert!(names(folder.path()).is_empty());
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Claim::of(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(names(folder.path()), ["a.sock"]);
    }

    #[test]
    fn what_has_taken_the_place_of_a_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let first = serve(&path);
        fs::remove_file(&path).unwrap();
        let second = serve(&path);
        drop(first);
        assert_eq!(names(folder.path()), ["a.sock", "a.sock.lock"]);
        knock(&path).unwrap();
        assert!(matches!(Claim::of(&path), Err(SocketError::Live(_))));
        drop(second);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_claim_keeps_others_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let claim = Claim::of(&path).unwrap();
        let told = Claim::of(&path).unwrap_err();
        assert!(matches!(told, SocketError::Busy { .. }), "{told}");
        drop(claim);
        Claim::of(&path).unwrap();
    }

    #[test]
    fn a_full_backlog_is_a_live_socket_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, 0).unwrap();
        while knock(&path).is_ok() {}
        assert!(matches!(Claim::of(&path), Err(SocketError::Live(_))));
    }
}
