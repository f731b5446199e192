//! A guest that runs, and what it says on its console.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pollux_tests::peers;
use tempfile::TempDir;

use crate::round_trip::Processors;

/// What its lines on the console begin with.
pub(super) const MARK: &str = "pollux-bench:";

/// Where its kernel and modules are.
pub(super) fn part(name: &str) -> PathBuf {
    peers::directory().join("uml").join(name)
}

/// A guest that runs. Dropping it ends it.
pub(super) struct Guest {
    kernel: Child,
    pub(super) console: ChildStdin,
    lines: Receiver<String>,
    _folder: TempDir,
}

impl Guest {
    /// Boots it with so many virtual `processors` on those of `spread`, with the disks at `sockets`, and with `script`
    /// as its first process.
    pub(super) fn boot(
        processors: u16,
        spread: Option<Processors>,
        sockets: &[PathBuf],
        script: &str,
    ) -> io::Result<Self> {
        // Not on /dev/shm, which the guest does not see.
        let folder = tempfile::tempdir()?;
        let init = folder.path().join("init");
        fs::write(&init, script)?;
        fs::set_permissions(&init, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        // It ends with the thread that asked for it, however that ends.
        let mut kernel = Command::new("setpriv");
        kernel.args(["--pdeathsig", "KILL"]);
        if let Some(Processors { own, other }) = spread {
            kernel.args(["taskset", "--cpu-list", &format!("{own},{other}")]);
        }
        let mut kernel = kernel
            .arg(part("linux"))
            .args(["mem=256M", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args(["con=null", "con0=fd:0,fd:1", "seccomp=on"])
            .arg(format!("ncpus={processors}"))
            .arg(format!("init={}", init.display()))
            .args(
                sockets
                    .iter()
                    .map(|socket| format!("virtio_uml.device={}:2", socket.display())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = kernel.stdout.take().expect("stdout is piped");
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            // Until nobody listens any more.
            while let Some(line) = lines.next()
                && said
                    .send(String::from_utf8_lossy(&line).trim().to_owned())
                    .is_ok()
            {}
        });
        Ok(Self {
            console: kernel.stdin.take().expect("stdin is piped"),
            kernel,
            lines,
            _folder: folder,
        })
    }

    /// The rest of its next line that begins with [`MARK`] and `word`.
    pub(super) fn says(&self, word: &str, patience: Duration) -> io::Result<String> {
        let mut others = vec![];
        loop {
            let line = self.lines.recv_timeout(patience).map_err(|gone| {
                let why = match gone {
                    RecvTimeoutError::Timeout => "hangs",
                    RecvTimeoutError::Disconnected => "has ended",
                };
                let said = others.join("\n");
                io::Error::other(format!("the guest {why} before it said {word}:\n{said}"))
            })?;
            let told = line.strip_prefix(MARK).map(str::trim_start);
            if let Some(rest) = told.and_then(|told| told.strip_prefix(word)) {
                return Ok(rest.trim().to_owned());
            }
            others.push(line);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.kernel.kill();
        let _ = self.kernel.wait();
    }
}
