//! A Ceph cluster of one node, started for a test: `tests/ceph/cluster.sh`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::peers;
use crate::process::Process;

/// A running cluster with the pool `rbd`. Dropping it ends its daemons.
pub struct Ceph {
    folder: TempDir,
    /// Where its programs are unpacked.
    prefix: PathBuf,
    /// What the script is told beside.
    knobs: &'static [(&'static str, &'static str)],
}

impl Ceph {
    /// Starts one, of a monitor and an OSD; `None` (and `SKIP` on the output) if Ceph is missing.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// The same, whose OSD keeps everything in memory: for measurements of what uses it.
    pub fn start_in_memory() -> Option<Self> {
        Self::with(&[("STORE", "memstore"), ("OSD_SIZE", "2G")])
    }

    fn with(knobs: &'static [(&'static str, &'static str)]) -> Option<Self> {
        peers::fetched("ceph/usr/bin/ceph-osd")?;
        let ceph = Self {
            folder: TempDir::new().expect("there is room for a folder"),
            prefix: peers::directory().join("ceph"),
            knobs,
        };
        ceph.lab(&["start"]);
        Some(ceph)
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().join("ceph")
    }

    /// Its configuration.
    pub fn conf(&self) -> PathBuf {
        self.folder().join("ceph.conf")
    }

    /// Appends `lines` to it, which clients read that start from now on.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn configure(&self, lines: &str) {
        let conf = File::options().append(true).open(self.conf());
        let mut conf = conf.expect("it is ours");
        conf.write_all(lines.as_bytes()).expect("there is room");
    }

    /// The description of its image `name`, with more `keys` (`,id=…`).
    pub fn spec(&self, name: &str, keys: &str) -> String {
        let conf = self.conf();
        format!("rbd:pool=rbd,image={name},conf={}{keys}", conf.display())
    }

    /// An empty image.
    pub fn create(&self, name: &str, bytes: u64) {
        self.run("rbd", &["create", name, "--size", &format!("{bytes}B")]);
    }

    /// What `program`, one of Ceph's, prints.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let bin = self.prefix.join("usr/bin").join(program);
        let lib = self.prefix.join("usr/lib/x86_64-linux-gnu");
        let libraries = format!("{}:{}/ceph", lib.display(), lib.display());
        let mut command = Command::new(bin);
        command.args(args).env("CEPH_CONF", self.conf());
        let python = self.prefix.join("usr/lib/python3/dist-packages");
        command.env("PYTHONPATH", python);
        succeeds(command.env("LD_LIBRARY_PATH", libraries))
    }

    /// How many objects the pool holds.
    pub fn objects(&self) -> usize {
        self.run("rados", &["-p", "rbd", "ls"]).lines().count()
    }

    /// Its daemons.
    pub fn daemons(&self) -> io::Result<[Process; 2]> {
        let daemon = |name| {
            let pid = fs::read_to_string(self.folder().join("run").join(name))?;
            let pid = pid.trim().parse().map_err(io::Error::other)?;
            io::Result::Ok(Process::new(pid))
        };
        Ok([daemon("mon.a.pid")?, daemon("osd.0.pid")?])
    }

    /// Ends the OSD without warning: nothing is answered until [`Ceph::start_osd`].
    pub fn kill_osd(&self) {
        self.lab(&["kill-osd", "0"]);
    }

    /// Starts it again.
    pub fn start_osd(&self) {
        self.lab(&["start-osd", "0"]);
    }

    /// Ends all of it.
    pub fn stop(&self) {
        self.lab(&["stop"]);
    }

    fn lab(&self, command: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ceph/cluster.sh");
        let (what, more) = command.split_first().expect("a command");
        let mut command = Command::new(script);
        command.arg(what).arg(self.folder()).args(more);
        command.env("CEPH_PREFIX", &self.prefix);
        command.envs(self.knobs.iter().copied());
        // A client that was killed counts as dead sooner than usual.
        succeeds(command.env("WATCH_TIMEOUT", "5"));
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        if self.conf().exists() {
            self.stop();
        }
    }
}

fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
