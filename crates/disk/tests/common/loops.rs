//! Block devices over files, where the test may make them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::{skip, sparse};

/// A block device over a file. One test at a time on the whole machine has some: `losetup` claims a device for a moment
/// even when another process has just taken it, and then no other can open it.
pub struct Loop(
    pub String,
    #[expect(dead_code, reason = "locked until the device is gone")] Arc<fs::File>,
);

impl Loop {
    pub fn over(file: &Path) -> Option<Self> {
        Self::with(&["--find", "--show"], file)
    }

    pub fn with(options: &[&str], file: &Path) -> Option<Self> {
        Self::make(options, file, alone()?)
    }

    pub fn in_folder(folder: &TempDir) -> Option<Self> {
        Self::over(&sparse(folder, 8 << 20))
    }

    /// One LUN as two hosts see it: each device has a page cache of its own.
    pub fn two_hosts(file: &Path) -> Option<[Self; 2]> {
        let alone = alone()?;
        let host = || Self::make(&["--find", "--show"], file, Arc::clone(&alone));
        Some([host()?, host()?])
    }

    fn make(options: &[&str], file: &Path, alone: Arc<fs::File>) -> Option<Self> {
        let device = succeeds(Command::new("losetup").args(options).arg(file))?;
        Some(Self(device.trim().to_owned(), alone))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn alone() -> Option<Arc<fs::File>> {
    let control = available(fs::File::open("/dev/loop-control"), "/dev/loop-control")?;
    rustix::fs::flock(&control, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Some(Arc::new(control))
}

/// What `command` prints; see [`available`].
pub fn succeeds(command: &mut Command) -> Option<String> {
    let output = command.output().and_then(|output| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(std::io::Error::other(text(&output.stderr)))
        }
    });
    available(output, &format!("{command:?}"))
}

/// What is there; where it is not, for want of privileges, the test is skipped.
fn available<T>(what: std::io::Result<T>, name: &str) -> Option<T> {
    what.inspect_err(|error| skip(&format!("{name}: {error}")))
        .ok()
}
