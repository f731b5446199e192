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

    /// Makes an empty image, with these `options` of its format, whose disk has so many `bytes`. Other files of it are
    /// named from its folder.
    pub fn create(&self, image: &Path, options: &str, bytes: u64) -> io::Result<()> {
        let mut command = Command::new(&self.0);
        command.args(["create", "-q", "-f", "qcow2", "-o", options]);
        let folder = image.parent().unwrap_or(Path::new("/"));
        succeeds(
            command
                .arg(image)
                .arg(bytes.to_string())
                .current_dir(folder),
        )
    }

    /// How `qemu-img check` judges the image: 3 means that clusters leak, and that there is no error.
    pub fn check(&self, image: &Path) -> io::Result<Output> {
        let mut command = Command::new(&self.0);
        command.args(["check", "-f", "qcow2"]).arg(image).output()
    }

    /// What the disk of the image holds.
    pub fn contents(&self, image: &Path) -> io::Result<Vec<u8>> {
        let raw = image.with_extension("raw");
        let mut command = Command::new(&self.0);
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
