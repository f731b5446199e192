//! What keeps a user from something is named: a folder that is closed to that user, or the right on what lies there.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::peers;
use pollux_tests::server::pollux_binary;
use tempfile::TempDir;

fn grant(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A folder with a program for a user without any rights.
struct Lab {
    folder: TempDir,
    setpriv: PathBuf,
}

impl Lab {
    fn new() -> Option<Self> {
        let setpriv = peers::installed("setpriv")?;
        let folder = TempDir::new().unwrap();
        grant(folder.path(), 0o777);
        let lab = Self { folder, setpriv };
        fs::copy(pollux_binary(), lab.at("pollux")).unwrap();
        fs::create_dir(lab.at("closed")).unwrap();
        Some(lab)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What that user is told by `pollux ARGS…`, which fails, while the folder `closed` has this mode. `@` stands for
    /// the folder of all.
    fn told(&self, closed: u32, args: &str) -> String {
        grant(&self.at("closed"), closed);
        let folder = self.folder.path().to_str().unwrap();
        let mut command = Command::new(&self.setpriv);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(self.at("pollux"));
        command.args(args.split(' ').map(|word| word.replace('@', folder)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn the_right_that_is_missing_is_named() {
    let Some(lab) = Lab::new() else {
        return;
    };
    for (name, mode) in [("disk.img", 0o222), ("old.img", 0o444), ("a.toml", 0o222)] {
        let path = lab.at("closed").join(name);
        fs::write(&path, [0; 4096]).unwrap();
        grant(&path, mode);
    }
    let _listener = UnixListener::bind(lab.at("closed/disk.sock")).unwrap();
    let null = "--disk null:size=1M";
    for (args, right) in [
        (
            "serve --socket-path @/s --blk-file @/closed/disk.img",
            "cannot be read",
        ),
        (
            "serve --socket-path @/s --blk-file @/closed/old.img",
            "cannot be written",
        ),
        (
            "serve --config @/closed/a.toml",
            "give this user the right to read it",
        ),
        (
            &format!("serve --socket-path @/closed/s {null}"),
            "cannot lock @/closed/s.lock; make its folder writable",
        ),
        (
            "bench --socket @/closed/disk.sock",
            "the right to write to the socket",
        ),
        (
            &format!("bench {null} --output @/closed/old.img"),
            "give this user the right to write it",
        ),
        (
            &format!("bench {null} --output @/closed/report"),
            "give this user the right to make files in its folder",
        ),
        (
            "disk list --control @/closed/disk.sock",
            "the right to write to the socket",
        ),
    ] {
        let folder = lab.folder.path().to_str().unwrap();
        let told = lab.told(0o755, args);
        assert!(told.contains(&right.replace('@', folder)), "{args}: {told}");
        let told = lab.told(0o700, args);
        let closed = format!("right to enter the folder {folder}/closed (");
        assert!(told.contains(&closed), "{args}: {told}");
    }
}
