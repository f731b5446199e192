//! Images in QEMU's format, made and read by QEMU's own program: `qemu-img`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::peers;

/// The program.
pub struct QemuImg(PathBuf);

impl QemuImg {
    /// Finds it; `None` (and `SKIP` on the output) if it is missing.
    pub fn find() -> Option<Self> {
        peers::installed("qemu-img").map(Self)
    }

    /// In the folder of the image: QEMU looks for its data file from where it runs.
    fn command(&self, image: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.current_dir(image.parent().unwrap_or(Path::new("/")));
        command
    }

    /// Makes an empty image, with these `options` of its format, whose disk has so many `bytes`.
    pub fn create(&self, image: &Path, options: &str, bytes: u64) -> io::Result<()> {
        let mut command = self.command(image);
        command.args(["create", "-q", "-f", "qcow2", "-o", options]);
        succeeds(command.arg(image).arg(bytes.to_string()))
    }

    /// How `qemu-img check` judges the image: 3 means that clusters leak, and that there is no error.
    pub fn check(&self, image: &Path) -> io::Result<Output> {
        let mut command = self.command(image);
        command.args(["check", "-f", "qcow2"]).arg(image).output()
    }

    /// What the disk of the image holds.
    pub fn contents(&self, image: &Path) -> io::Result<Vec<u8>> {
        let raw = image.with_extension("raw");
        let mut command = self.command(image);
        command.args(["convert", "-f", "qcow2", "-O", "raw"]);
        succeeds(command.arg(image).arg(&raw))?;
        fs::read(raw)
    }
}

fn succeeds(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {output:?}")))
}
