//! Which folder keeps this user from a path: errors of files, images and sockets name it.

use std::fs;
use std::io;
use std::path::Path;

/// The folder that keeps this user from `path`. Those below it seem to do so as well. There is none to name where a
/// link leads through it.
///
/// It asks by `stat` alone, which every thread of the program may call that opens files or connects.
#[must_use]
pub fn closed_folder(path: &Path) -> Option<&Path> {
    let is_closed = |folder: &&Path| {
        let entered = fs::metadata(folder.join("."));
        entered.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let folders = path.ancestors().skip(1);
    let named = folders.filter(|folder| !folder.as_os_str().is_empty());
    let first = named.filter(is_closed).last()?;
    (!first.is_symlink()).then_some(first)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use rustix::process::geteuid;
    use rustix::thread::set_thread_uid;

    use super::*;

    /// What the function says to a user other than root: nothing is closed to root.
    fn told(path: &Path) -> Option<PathBuf> {
        let asked = || {
            if geteuid().is_root() {
                set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
            }
            closed_folder(path).map(Path::to_owned)
        };
        // The kernel has a user for each thread.
        std::thread::scope(|scope| scope.spawn(asked).join().unwrap())
    }

    #[test]
    fn the_first_closed_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let grant = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        grant(folder.path(), 0o755);
        let closed = folder.path().join("closed");
        let path = closed.join("below/disk.img");
        fs::create_dir_all(closed.join("below")).unwrap();
        assert_eq!(told(&path), None);
        grant(&closed, 0o644);
        assert_eq!(told(&path), Some(closed.clone()));
        assert_eq!(told(&closed), None, "it is there to be seen");
        let link = folder.path().join("link");
        symlink(closed.join("below"), &link).unwrap();
        assert_eq!(
            told(&link.join("disk.img")),
            None,
            "no right to the link itself is missing"
        );
        // So that it can be removed.
        grant(&closed, 0o755);
        assert_eq!(told(Path::new("disk.img")), None);
    }
}
