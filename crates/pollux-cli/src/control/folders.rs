//! The folders of `--disk-folder`: what a disk that is added may reach.
//!
//! The kernel keeps everything else away (Landlock); this says so before, in words, and alone where there is no
//! sandbox.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use pollux::disk::Spec;

use crate::model::{Problem, Refused};

/// All of them, with no link in their paths. They are named once in a process.
#[derive(Clone, Copy, Debug)]
pub struct Folders(&'static [PathBuf]);

/// What is wanted at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An image, or another daemon's socket.
    Image,
    /// A socket of our own.
    Socket,
}

impl Wanted {
    const fn field(self) -> &'static str {
        match self {
            Self::Image => "disk",
            Self::Socket => "socket_path",
        }
    }
}

impl Folders {
    /// Those at these `paths`; `None` without any.
    pub fn new(paths: &[PathBuf]) -> Result<Option<Self>, String> {
        let real = |path: &PathBuf| {
            let failed = |why: &dyn std::fmt::Display| {
                format!(
                    "--disk-folder {}: {why}; name an existing folder",
                    path.display()
                )
            };
            let real = fs::canonicalize(path).map_err(|error: io::Error| failed(&error))?;
            if real.is_dir() {
                Ok(real)
            } else {
                Err(failed(&"this is no folder"))
            }
        };
        let folders = paths.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        Ok((!folders.is_empty()).then(|| Self(folders.leak())))
    }

    /// Where sockets are made for which no place is named.
    pub fn first(self) -> &'static Path {
        &self.0[0]
    }

    /// All of them.
    pub fn all(self) -> &'static [PathBuf] {
        self.0
    }

    /// Does the file at `path` lie in one of them, or would it?
    pub fn hold(self, path: &Path) -> bool {
        self.contain(&real(path))
    }

    fn contain(self, real: &Path) -> bool {
        self.0.iter().any(|folder| real.starts_with(folder))
    }

    /// May a disk use what is at `path`?
    pub fn check(self, path: &Path, wanted: Wanted) -> Result<(), Refused> {
        let refused = |problem: Problem| Err(problem.of(wanted.field()).into());
        if !path.is_absolute() {
            let detail = format!("{} is relative", path.display());
            let problem = Problem::bad_request(detail, "write the whole path, from / on");
            return refused(problem);
        }
        if leads_nowhere(path) {
            let detail = format!("{} is a link to what cannot be reached", path.display());
            let remedy = "name what it is to lead to";
            let problem = Problem::forbidden(detail, remedy);
            return refused(problem);
        }
        let real = real(path);
        if self.contain(&real) {
            if wanted == Wanted::Image || !real.is_dir() {
                return Ok(());
            }
            let detail = format!("{} is a folder", path.display());
            return refused(Problem::bad_request(detail, "name a socket in it"));
        }
        let named: Vec<_> = self
            .0
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        let named = named.join(", ");
        let detail = if real == path {
            format!(
                "{} lies outside of the folders for disks ({named})",
                path.display()
            )
        } else {
            format!(
                "{} is {}, outside of the folders for disks ({named})",
                path.display(),
                real.display()
            )
        };
        let other = real.parent().unwrap_or(Path::new("/")).display();
        let remedy = format!(
            "put it into one of them, or start the daemon with --disk-folder {other} as well"
        );
        let remedy = match wanted {
            Wanted::Image => {
                remedy + "; an image may be passed as a descriptor (`pollux disk add --pass-fd`)"
            }
            Wanted::Socket => remedy,
        };
        refused(Problem::forbidden(detail, remedy))
    }
}

/// Is it a link that has no end? What makes a file there would make it wherever that leads.
fn leads_nowhere(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok() && fs::canonicalize(path).is_err()
}

/// Where `path` leads; of what is not there yet, where its folder is.
pub fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let folder = path
        .parent()
        .and_then(|folder| fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        // It is nowhere; `..` leads out of any folder all the same.
        _ => path
            .components()
            .fold(PathBuf::new(), |so_far, part| match part {
                Component::ParentDir => so_far.parent().map(Path::to_owned).unwrap_or_default(),
                part => so_far.join(part),
            }),
    }
}

/// The images and the sockets of other daemons that opening `spec` reaches for.
pub fn reached(spec: &Spec) -> impl Iterator<Item = &Path> {
    spec.parts().into_iter().filter_map(|part| match part {
        Spec::File { path, .. } | Spec::Qcow2 { path, .. } => Some(&**path),
        Spec::VhostUser(disk) => Some(&*disk.path),
        Spec::Fault { faults, .. } => faults.log.as_deref(),
        // Whatever is new here has to say what it reaches for, or is stopped by the kernel.
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_leads_out_of_the_folders_is_refused_with_the_option_that_allows_it() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path().canonicalize().unwrap();
        let folder = above.join("images");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(above.join("images-of-others")).unwrap();
        fs::write(above.join("secret"), "").unwrap();
        fs::write(folder.join("root.img"), "").unwrap();
        symlink(above.join("secret"), folder.join("link.img")).unwrap();
        symlink(above.join("new"), folder.join("nowhere")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        symlink(&folder, above.join("inwards")).unwrap();
        let folders = Folders::new(&[above.join("inwards")]).unwrap().unwrap();
        for inside in [
            "images/root.img",
            "inwards/root.img",
            "images/new.sock",
            "images/../images/root.img",
        ] {
            folders.check(&above.join(inside), Wanted::Image).unwrap();
        }
        for outside in [
            "secret",
            "images/../secret",
            "images/link.img",
            "images-of-others/root.img",
            "images/none/../../secret",
            "images/none/deep/../../../secret",
        ] {
            let problem = folders
                .check(&above.join(outside), Wanted::Image)
                .unwrap_err();
            assert_eq!(problem.status, 403, "{outside}");
            assert_eq!(problem.field.as_deref(), Some("disk"));
            assert!(problem.remedy.contains("--disk-folder "), "{problem:?}");
        }
        for dangling in ["images/nowhere", "images/loop"] {
            let problem = folders.check(&above.join(dangling), Wanted::Image);
            let problem = problem.unwrap_err();
            assert_eq!(problem.status, 403, "{dangling}");
            assert!(problem.detail.contains("link"), "{problem:?}");
        }
        let problem = folders.check(&folder, Wanted::Socket).unwrap_err();
        assert!(problem.detail.ends_with("is a folder"), "{problem:?}");
        let problem = folders
            .check(Path::new("root.img"), Wanted::Socket)
            .unwrap_err();
        assert_eq!(
            (problem.status, problem.field.as_deref()),
            (400, Some("socket_path"))
        );
        let told = Folders::new(&[above.join("secret")]).unwrap_err();
        assert!(told.contains("no folder"), "{told}");
        assert!(Folders::new(&[]).unwrap().is_none());
    }
}
