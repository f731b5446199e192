//! Paths that hold wherever this process is later. In the sandbox it cannot ask for its working directory.

use std::path::{Path, PathBuf};

/// The absolute form of `path`.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Where the file at `path` lies.
pub fn folder(path: &Path) -> PathBuf {
    let path = absolute(path);
    path.parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_owned)
}
