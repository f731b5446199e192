//! Paths that hold wherever this process is later, as in the sandbox it cannot ask for its working directory; and what
//! keeps this user from one.

use std::io;
use std::path::{Path, PathBuf};

use pollux::disk::closed_folder;

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

/// What to add to `error`, which something done at `path` has met: the right that this user lacks, if that is why. It
/// is to enter a folder, or else `right`.
pub fn missing_right(path: &Path, error: &io::Error, right: &str) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    match closed_folder(path) {
        Some(folder) => format!(
            "; give this user the right to enter the folder {} (`chmod +x`)",
            folder.display()
        ),
        None => format!("; give this user the right to {right}"),
    }
}
