//! The file of `--state`: which disks were added, for the next process.
//!
//! It is replaced as a whole: written beside, synced, renamed, and its folder synced. So a process that is killed
//! meanwhile leaves either the old or the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pollux_threads::once_let_go;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use serde::{Deserialize, Serialize};

use crate::model::NewDisk;
use crate::paths::absolute;

/// The disks by their names.
pub type Added = BTreeMap<String, NewDisk>;

/// What the file holds.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    disks: Added,
}

/// The file, which is this process's own while this lives.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    beside: PathBuf,
    _lock: File,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadState {
    #[error("--state {path}: another daemon keeps its disks there; give each a file of its own")]
    Taken { path: PathBuf },
    #[error(
        "--state {path}: cannot {doing}; its folder has to exist, and to be writable for this user"
    )]
    Machine {
        path: PathBuf,
        doing: &'static str,
        source: io::Error,
    },
    #[error("--state {path} is no regular file; name one, which need not be there yet")]
    NotAFile { path: PathBuf },
    #[error("--state {path} is no list of disks; mend it, or move it away to start without")]
    Contents {
        path: PathBuf,
        source: serde_json::Error,
    },
}

/// Opens one of the files beside the list, and makes it if it is not there. A pipe of its name is refused,
/// not waited for.
fn create(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Kept {
    /// Takes the file at `path`, which need not be there yet, and reads it.
    pub fn open(path: &Path) -> Result<(Self, Added), BadState> {
        let path = absolute(path);
        let failed = |doing| {
            let path = path.clone();
            move |source| BadState::Machine {
                path,
                doing,
                source,
            }
        };
        // Opening a pipe would wait for its other end.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(BadState::NotAFile { path });
        }
        let lock = create(&with_ending(&path, "lock"), OFlags::empty())
            .map_err(failed("make the file that locks it"))?;
        let take = || flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if once_let_go(take, |_| true).is_err() {
            return Err(BadState::Taken { path });
        }
        let contents = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|source| {
                let path = path.clone();
                BadState::Contents { path, source }
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(error) => return Err(failed("read it")(error)),
        };
        let kept = Self {
            beside: with_ending(&path, "new"),
            path,
            _lock: lock,
        };
        Ok((kept, contents.disks))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what is kept. When this returns, a power cut does not bring back the old.
    pub fn write(&self, disks: Added) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&Contents { disks })?;
        text.push(b'\n');
        let mut file = create(&self.beside, OFlags::TRUNC)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&self.beside, &self.path)?;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_belongs_to_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let disk: NewDisk =
            serde_json::from_str(r#"{"disk": "null:size=1G", "limits": {"iops_total": 5}}"#)
                .unwrap();
        let added = Added::from([("a".to_owned(), disk)]);
        let (kept, none) = Kept::open(&path).unwrap();
        assert!(none.is_empty());
        kept.write(added.clone()).unwrap();
        let told = Kept::open(&path).unwrap_err().to_string();
        assert!(told.contains("another daemon"), "{told}");
        let told = Kept::open(folder.path()).unwrap_err().to_string();
        assert!(told.contains("is no regular file"), "{told}");
        drop(kept);
        let pipe = folder.path().join("pipe");
        let right = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, with_ending(&pipe, "lock"), FileType::Fifo, right, 0).unwrap();
        let told = Kept::open(&pipe).unwrap_err().to_string();
        assert!(told.contains("make the file that locks it"), "{told}");
        // An earlier process was killed.
        fs::write(with_ending(&path, "new"), "half of").unwrap();
        let (kept, again) = Kept::open(&path).unwrap();
        assert_eq!(again, added);
        kept.write(Added::new()).unwrap();
        drop(kept);
        assert!(Kept::open(&path).unwrap().1.is_empty());
    }

    #[test]
    fn a_file_that_is_no_list_of_disks_is_named_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, r#"{"disks": {"a": {"size": 5}}}"#).unwrap();
        let told = Kept::open(&path).unwrap_err().to_string();
        assert!(told.contains("mend it"), "{told}");
        assert!(told.contains("state.json"), "{told}");
        let told = Kept::open(&folder.path().join("none/state.json")).unwrap_err();
        assert!(told.to_string().contains("has to exist"), "{told}");
    }
}
