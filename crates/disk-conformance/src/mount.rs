//! File systems that a test mounts for itself.

use std::ffi::CStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::eventually;

/// A file system that is mounted, which this thread sees, and the threads and processes that it starts. It goes with
/// the last of them, however they end.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Mounts `source`, a file system of that `kind`, at the folder `at`.
    ///
    /// # Errors
    ///
    /// As mount(2) says: it takes root.
    pub fn new(source: &Path, at: PathBuf, kind: &str, options: Option<&CStr>) -> io::Result<Self> {
        enter_own_namespace()?;
        rustix::mount::mount(source, &at, kind, MountFlags::empty(), options)?;
        Ok(Self { at })
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Waits until nobody uses it any more: the kernel may let go of a dead process's files, or of those of an
    /// `io_uring`, a little later.
    ///
    /// # Panics
    ///
    /// When it is still in use after a minute.
    pub fn unmount(self) {
        let mut outcome = Ok(());
        eventually(
            || {
                outcome = rustix::mount::unmount(&self.at, UnmountFlags::empty());
                outcome != Err(Errno::BUSY)
            },
            || format!("{} is in use", self.at.display()),
        );
        // Unless this worked, dropping it tries again and says what is wrong.
        if outcome.is_ok() {
            std::mem::forget(self);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = rustix::mount::unmount(&self.at, UnmountFlags::DETACH) {
            let _ = writeln!(
                io::stderr(),
                "cannot unmount {}: {error}",
                self.at.display()
            );
        }
    }
}

/// Gives this thread, and the processes it will start, mounts that nobody else sees and that end with them.
fn enter_own_namespace() -> io::Result<()> {
    thread_local! {
        static OWN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if OWN.get() {
        return Ok(());
    }
    // SAFETY: of the thread's descriptors nothing is unshared; that its working directory no longer
    // follows `chdir` of other threads concerns nobody here.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    OWN.set(true);
    Ok(())
}
