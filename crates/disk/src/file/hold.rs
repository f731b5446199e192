//! When an image is locked: as long as it is open, or only while it is used.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::lock::Lock;
use super::settings::Locked;
use crate::{Access, OpenError};

/// The lock of an open image, while there is one.
#[derive(Debug)]
pub struct Hold {
    when: Locked,
    lock: Mutex<Option<Lock>>,
}

impl Hold {
    /// That of `file`, which has just been opened at `path`.
    ///
    /// # Errors
    ///
    /// See [`Lock::take`].
    pub fn open(when: Locked, file: &File, path: &Path, access: Access) -> Result<Self, OpenError> {
        let lock = match when {
            Locked::Always => Some(Lock::take(file, path, access)?),
            Locked::Running => None,
        };
        let lock = Mutex::new(lock);
        Ok(Self { when, lock })
    }

    /// The image is used from now on.
    ///
    /// # Errors
    ///
    /// See [`Lock::take`].
    pub fn acquire(&self, file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            *lock = Some(Lock::take(file, path, access)?);
        }
        Ok(())
    }

    /// The image is not used any more. Somebody else may have it once `settle` has succeeded, unless it is
    /// locked as long as it is open.
    ///
    /// # Errors
    ///
    /// What `settle` says.
    pub fn release<E>(&self, settle: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.when == Locked::Running && lock.is_some() {
            settle()?;
            *lock = None;
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
        assert!(refusal.contains("has it open for writing"), "{refusal}");
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
    fn what_is_not_on_stable_storage_is_kept() {
        let image = image();
        let (path, access) = (image.path(), Access::ReadWrite);
        let file = image.as_file();
        let hold = Hold::open(Locked::Running, file, path, access).unwrap();
        hold.acquire(file, path, access).unwrap();
        hold.release(|| Err(io::Error::other("lost"))).unwrap_err();
        open(path, Locked::Always).unwrap_err();
        hold.release(|| Ok::<(), io::Error>(())).unwrap();
        open(path, Locked::Always).unwrap();
        let nobody_waits = || -> Result<(), io::Error> { panic!("there is nothing to let go") };
        hold.release(nobody_waits).unwrap();
    }
}
