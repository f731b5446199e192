//! A file system with little room, where the test may mount it.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::loops::succeeds;
use super::sparse;

/// A file system that is nearly full from the start; `None`, with a word, where it cannot be mounted.
pub struct Tiny {
    folder: TempDir,
}

impl Tiny {
    pub fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let size = ["-t", "tmpfs", "-o", "size=1M", "tiny"];
        succeeds(Command::new("mount").args(size).arg(folder.path())).map(|_| Self { folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A sparse disk, larger than there is room for.
    pub fn file(&self) -> PathBuf {
        sparse(&self.folder, 8 << 20)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}
