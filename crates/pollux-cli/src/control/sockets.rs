//! Which daemons are asked: one, by its socket, or all whose sockets are in a folder.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::paths::missing_right;

/// How a control socket's name ends in such a folder. Other sockets there are for virtual machines, and a client that
/// connected to one would take a frontend's turn.
const ENDING: &str = "control";

/// The sockets that `asked` means, and whether it named one of them.
#[derive(Debug, PartialEq, Eq)]
pub enum Sockets {
    /// This one.
    One(PathBuf),
    /// All in a folder, in the order of their names.
    Folder(PathBuf, Vec<PathBuf>),
}

/// The folder of daemons that belong to no user's session.
const SYSTEM: &str = "/run/pollux";

impl Sockets {
    /// What to say of a folder without any.
    pub fn none_in(folder: &Path) -> String {
        let other = if folder == Path::new(SYSTEM) {
            String::new()
        } else {
            format!(", such as --control {SYSTEM}")
        };
        let folder = folder.display();
        format!(
            "no daemon has a control socket in {folder}, where this user's are; name another folder{other}, or start \
             one with --control {folder}/NAME.control"
        )
    }
}

/// The folder that is searched if none is named.
fn usual(runtime: Option<&OsStr>) -> PathBuf {
    match runtime {
        Some(runtime) if !runtime.is_empty() => Path::new(runtime).join("pollux"),
        _ => PathBuf::from(SYSTEM),
    }
}

/// Finds the sockets.
pub fn find(asked: Option<&Path>) -> Result<Sockets, String> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let at = asked.map_or_else(|| usual(runtime.as_deref()), Path::to_owned);
    if asked.is_some() && !at.is_dir() {
        return Ok(Sockets::One(at));
    }
    let mut sockets = within(&at).map_err(|error| {
        let (folder, remedy) = (at.display(), missing_right(&at, &error, "read it"));
        format!("cannot search {folder} for control sockets{remedy}: {error}")
    })?;
    sockets.sort();
    Ok(Sockets::Folder(at, sockets))
}

fn within(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if path.extension() == Some(OsStr::new(ENDING)) && entry.file_type()?.is_socket() {
            sockets.push(path);
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_folder_stands_for_the_control_sockets_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.control", "a.control", "disk.sock"] {
            UnixListener::bind(at(name)).unwrap();
        }
        fs::write(at("file.control"), "").unwrap();
        let all = vec![at("a.control"), at("b.control")];
        assert_eq!(
            find(Some(folder.path())).unwrap(),
            Sockets::Folder(folder.path().to_owned(), all)
        );
        let one = at("elsewhere.sock");
        assert_eq!(find(Some(&one)).unwrap(), Sockets::One(one));
    }

    #[test]
    fn the_usual_folder_is_the_users_or_the_systems() {
        let of_user = usual(Some(OsStr::new("/run/user/7")));
        assert_eq!(of_user, Path::new("/run/user/7/pollux"));
        for none in [None, Some(OsStr::new(""))] {
            assert_eq!(usual(none), Path::new("/run/pollux"));
        }
    }
}
