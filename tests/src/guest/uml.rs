//! A Linux kernel that runs as a process, at native speed: User-Mode Linux.
//!
//! It boots in a third of a second on the root of this machine, which it sees read-only, so a script may call every
//! program that is installed here. Its `virtio_uml` is a second frontend beside QEMU: it passes one end of a socket
//! pair where QEMU passes an eventfd. When its server goes away, so does the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::running::Running;
use super::{LIBRARY, Outcome, PATIENCE};
use crate::peers;

/// The kernel that `tests/setup.sh` builds.
#[derive(Clone, Debug)]
pub struct UserModeLinux {
    folder: PathBuf,
    /// How long it may take for a test.
    patience: Duration,
}

impl UserModeLinux {
    /// Finds it; `None` (and `SKIP` on the output) if it is missing.
    pub fn find() -> Option<Self> {
        Self::find_in("uml")
    }

    /// The same for the kernel that looks for faults in itself, for which `tests/setup.sh full` has to be run.
    pub fn find_debug() -> Option<Self> {
        let kernel = Self::find_in("uml-debug")?;
        Some(Self {
            patience: 5 * kernel.patience,
            ..kernel
        })
    }

    fn find_in(folder: &str) -> Option<Self> {
        let kernel = peers::fetched(&format!("{folder}/linux"))?;
        peers::fetched(&format!("{folder}/pollux_blk.ko"))?;
        let folder = kernel.parent()?.canonicalize().ok()?;
        Some(Self {
            folder,
            patience: PATIENCE,
        })
    }

    /// Boots it with the disk on `socket` as `/dev/vda`, to run `script` (see `tests/guest/lib.sh` for what it may
    /// call); `arguments` are the kernel's.
    pub fn start(&self, socket: &Path, script: &str, arguments: &[&str]) -> io::Result<Running> {
        self.start_with(&[socket], script, arguments)
    }

    /// The same with several disks.
    pub fn start_with(
        &self,
        sockets: &[&Path],
        script: &str,
        arguments: &[&str],
    ) -> io::Result<Running> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("script");
        std::fs::write(&file, format!("{LIBRARY}\n{script}"))?;
        let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/uml/init");
        // It must not outlive a test that is itself killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.arg(self.folder.join("linux"));
        command.args([
            "mem=512M",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
        ]);
        command.args(["con=null", "con0=fd:0,fd:1", "seccomp=on", "ncpus=2"]);
        command.arg(format!("init={}", init.display()));
        command.arg(format!("script={}", file.display()));
        command.arg(format!("modules={}", self.folder.display()));
        for socket in sockets {
            command.arg(format!("virtio_uml.device={}:2", socket.display()));
        }
        command.args(arguments);
        // Its own files.
        command.env("HOME", folder.path());
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(&mut command, folder, self.patience, None)
    }

    /// As [`UserModeLinux::start`], and waits until it has powered off.
    pub fn run(&self, socket: &Path, script: &str, arguments: &[&str]) -> io::Result<Outcome> {
        self.start(socket, script, arguments)?.finish()
    }
}
