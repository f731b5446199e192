//! A file system with little room, where the test may mount it.

use std::path::{Path, PathBuf};

use pollux_disk_conformance::Mount;
use tempfile::TempDir;

use super::loops::available;
use super::sparse;

/// A file system that is nearly full from the start; `None`, with a word, where it cannot be mounted.
pub struct Tiny {
    mount: Option<Mount>,
    folder: TempDir,
}

impl Tiny {
    pub fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let at = folder.path().to_owned();
        let mount = Mount::new(Path::new("tiny"), at, "tmpfs", Some(c"size=1M"));
        let mount = Some(available(mount, "a mount")?);
        Some(Self { mount, folder })
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
    /// What still uses a file of it by then is a fault, of which a test that has failed already need not tell.
    fn drop(&mut self) {
        if !std::thread::panicking()
            && let Some(mount) = self.mount.take()
        {
            mount.unmount();
        }
    }
}
