//! Paths that hold wherever this process is later, as in the sandbox it cannot ask for its working directory; and what
//! keeps this user from one.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use pollux::disk::closed_folder;
use rustix::fs::{Mode, OFlags};

/// How many bytes a file of text has at most: a device has no end.
const LONGEST_TEXT: u64 = 4 << 20;

/// The text of the file at `path`, or of a pipe with what another program prints; one that nobody writes to has ended.
pub fn text(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    let mut text = Vec::new();
    let many = file.take(LONGEST_TEXT + 1).read_to_end(&mut text)?;
    let text = String::from_utf8(text).ok();
    let is_text = |text: &String| many as u64 <= LONGEST_TEXT && !text.contains('\0');
    text.filter(is_text)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "this is no text"))
}

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
