//! Block devices over files, where the test may make them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pollux_disk_conformance::eventually;
use tempfile::TempDir;

use super::{skip, sparse};

/// A block device over a file, which goes with the process that has it, however that ends. One test at a time on the
/// whole machine has some: `losetup` claims a device for a moment even when another process has just taken it, and then
/// no other can open it.
pub struct Loop(
    pub String,
    /// Its last user.
    Option<fs::File>,
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
        let device = device.trim().to_owned();
        let open = fs::File::open(&device);
        // It stays until its last user lets go, and no longer.
        succeeds(Command::new("losetup").args(["--detach", &device]))?;
        Some(Self(device, Some(open.unwrap()), alone))
    }
}

impl Drop for Loop {
    /// What still uses it by then is a fault, of which a test that has failed already need not tell. An `io_uring` may
    /// let go a little later.
    fn drop(&mut self) {
        self.1 = None;
        if !std::thread::panicking() {
            let name = self.0.trim_start_matches("/dev/");
            let bound = Path::new("/sys/block").join(name).join("loop");
            eventually(|| !bound.exists(), || format!("{} is in use", self.0));
        }
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
pub fn available<T>(what: std::io::Result<T>, name: &str) -> Option<T> {
    what.inspect_err(|error| skip(&format!("{name}: {error}")))
        .ok()
}
