//! When an image is locked: as long as it is open, or only while it is used.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use pollux_threads::lock;

use super::lock::{LINGERS, Lock};
use super::settings::Locked;
use crate::{Access, OpenError};

/// The lock of an open image, while there is one.
#[derive(Debug)]
pub enum Hold {
    /// As long as it is open.
    Always(#[expect(dead_code, reason = "held for its drop")] Lock),
    /// While it is used.
    Running(Mutex<LockState>),
}

/// Of an image that is locked while it is used.
#[derive(Debug)]
pub enum LockState {
    /// Others may use the image.
    Free,
    /// As before, and it was in use when it was asked for last. Inside the sandbox it cannot be seen whether a
    /// process holds a lock, or a process was killed whose files the kernel has yet to close: the latter
    /// was waited for then, and is not waited for again.
    Refused,
    Locked(#[expect(dead_code, reason = "held for its drop")] Lock),
}

impl Hold {
    /// That of `file`, which has just been opened at `path`.
    ///
    /// # Errors
    ///
    /// See [`Lock::take`].
    pub fn open(when: Locked, file: &File, path: &Path, access: Access) -> Result<Self, OpenError> {
        Ok(match when {
            Locked::Always => Self::Always(Lock::take(file, path, access, LINGERS)?),
            Locked::Running => Self::Running(Mutex::new(LockState::Free)),
        })
    }

    /// The image is used from now on. Where it was not before, `inspect` is called, which finds out what others
    /// have made of it; unless that succeeds, it is not locked.
    ///
    /// # Errors
    ///
    /// See [`Lock::take`]; and what `inspect` says.
    pub fn acquire(
        &self,
        file: &File,
        path: &Path,
        access: Access,
        inspect: impl FnOnce() -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let Self::Running(state) = self else {
            return Ok(());
        };
        let mut state = lock(state);
        let patience = match *state {
            LockState::Free => LINGERS,
            LockState::Refused => Duration::ZERO,
            LockState::Locked(_) => return Ok(()),
        };
        *state = LockState::Refused;
        let lock = Lock::take(file, path, access, patience)?;
        *state = LockState::Free;
        inspect()?;
        *state = LockState::Locked(lock);
        Ok(())
    }

    /// What `body` says, during which the image is not let go. `None`: it is not locked.
    pub fn while_locked<T>(&self, body: impl FnOnce() -> T) -> Option<T> {
        let Self::Running(state) = self else {
            return Some(body());
        };
        let state = lock(state);
        matches!(*state, LockState::Locked(_)).then(body)
    }

    /// The image is not used any more. Others may have it once `settle` has succeeded, unless it is
    /// locked as long as it is open.
    ///
    /// # Errors
    ///
    /// What `settle` says.
    pub fn release<E>(&self, settle: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let Self::Running(state) = self else {
            return Ok(());
        };
        let mut state = lock(state);
        if matches!(*state, LockState::Locked(_)) {
            settle()?;
            *state = LockState::Free;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use crate::file::Settings;
    use crate::{Disk, File, Options};

    use super::*;

    fn open(path: &Path, lock: Locked) -> Result<File, OpenError> {
        let settings = Settings {
            lock,
            ..Settings::default()
        };
        File::open(path, settings, &Options::default())
    }

    fn image() -> tempfile::NamedTempFile {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        image
    }

    #[test]
    fn one_after_the_other_may_use_an_image_that_both_have_open() {
        let image = image();
        let [one, other] = [(); 2].map(|()| open(image.path(), Locked::Running).unwrap());
        one.acquire().unwrap();
        one.acquire().unwrap();
        let refusal = other.acquire().unwrap_err().to_string();
        assert!(refusal.contains("this process has it open"), "{refusal}");
        one.release().unwrap();
        one.release().unwrap();
        other.acquire().unwrap();
        one.acquire().unwrap_err();
        drop(other);
        one.acquire().unwrap();
    }

    #[test]
    fn an_image_that_is_locked_as_long_as_it_is_open_is_let_go_by_nothing_else() {
        let image = image();
        let always = open(image.path(), Locked::Always).unwrap();
        let running = open(image.path(), Locked::Running).unwrap();
        always.acquire().unwrap();
        always.release().unwrap();
        running.acquire().unwrap_err();
        drop(always);
        running.acquire().unwrap();
        open(image.path(), Locked::Always).unwrap_err();
    }

    #[test]
    fn a_dead_process_is_waited_for_once() {
        let image = image();
        let (path, access) = (image.path(), Access::ReadWrite);
        let hold = Hold::open(Locked::Running, image.as_file(), path, access).unwrap();
        let acquired = || hold.acquire(image.as_file(), path, access, || Ok(()));
        let Hold::Running(state) = &hold else {
            unreachable!("it was asked for");
        };
        let refused = || matches!(*state.lock().unwrap(), LockState::Refused);
        let other = open(path, Locked::Always).unwrap();
        acquired().unwrap_err();
        assert!(refused());
        drop(other);
        acquired().unwrap();
        hold.release(|| Ok::<(), io::Error>(())).unwrap();
        assert!(!refused());
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_kept() {
        let image = image();
        let (path, access) = (image.path(), Access::ReadWrite);
        let file = image.as_file();
        let hold = Hold::open(Locked::Running, file, path, access).unwrap();
        let unseen = || {
            let (path, bytes) = (path.to_owned(), 0);
            Err(OpenError::Empty { path, bytes })
        };
        hold.acquire(file, path, access, unseen).unwrap_err();
        open(path, Locked::Always).unwrap();
    }

    #[test]
    fn what_is_not_on_stable_storage_is_kept() {
        let image = image();
        let (path, access) = (image.path(), Access::ReadWrite);
        let file = image.as_file();
        let hold = Hold::open(Locked::Running, file, path, access).unwrap();
        hold.acquire(file, path, access, || Ok(())).unwrap();
        hold.release(|| Err(io::Error::other("lost"))).unwrap_err();
        open(path, Locked::Always).unwrap_err();
        hold.release(|| Ok::<(), io::Error>(())).unwrap();
        open(path, Locked::Always).unwrap();
        let nobody_waits = || -> Result<(), io::Error> { panic!("there is nothing to let go") };
        hold.release(nobody_waits).unwrap();
    }
}
