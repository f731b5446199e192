//! The configuration file: several disks in one process.

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::export::ExportArgs;
use crate::paths::{absolute, missing_right, text};
use crate::process::ProcessArgs;

mod remedy;

/// A configuration file.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct File {
    /// Where HTTP is answered.
    pub control: Option<PathBuf>,
    /// Where metrics are told over TCP.
    pub metrics_listen: Option<SocketAddr>,
    /// What holds for the whole process.
    #[serde(default)]
    pub process: ProcessArgs,
    /// Folders with the images and sockets of disks that are added later.
    #[serde(default)]
    pub disk_folder: Vec<PathBuf>,
    /// The file that lists these disks.
    pub state: Option<PathBuf>,
    /// The disks.
    #[serde(default)]
    pub disk: Vec<ExportArgs>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}{remedy}")]
    Read {
        path: String,
        /// The right that is missing, if one is.
        remedy: String,
        source: Error,
    },
    /// It is no configuration.
    #[error("cannot use the configuration file {path}{remedy}")]
    Parse {
        path: String,
        /// What to write, where `source` does not tell.
        remedy: String,
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A path or a name without a letter.
    #[error("{path}: {section}{key} is empty; give {what}")]
    Empty {
        path: String,
        section: String,
        key: &'static str,
        what: &'static str,
    },
    /// Two disks, and one way to both.
    #[error(
        "{path}: `{first}` and `{second}` have the same socket-path {socket}; give each disk a socket of its own"
    )]
    SameSocket {
        path: String,
        first: String,
        second: String,
        socket: PathBuf,
    },
    /// It names no disk.
    #[error(
        "{path} describes no disk; add a section [[disk]] with keys such as blk-file = \"/srv/a.img\" and \
         socket-path = \"/run/a.sock\", or a disk-folder for disks that are added later"
    )]
    NoDisk { path: String },
}

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<File, BadFile> {
    let text = text(path).map_err(|source| BadFile::Read {
        path: path.display().to_string(),
        remedy: unread(path, &source),
        source,
    })?;
    parse(&text, path)
}

/// What to do where the file at `path` cannot be read.
fn unread(path: &Path, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "; give the path of another, or write one: a section [[disk]] for each disk, with the options of \
             `pollux serve --help` as keys"
                .to_owned()
        }
        ErrorKind::IsADirectory | ErrorKind::InvalidData => "; give a TOML file".to_owned(),
        _ => missing_right(path, error, "read it"),
    }
}

/// Reads what the file at `path` holds.
pub fn parse(text: &str, path: &Path) -> Result<File, BadFile> {
    let name = || path.display().to_string();
    let file: File = toml::from_str(text).map_err(|error| BadFile::Parse {
        path: name(),
        remedy: remedy::of(text, &error),
        source: Box::new(error),
    })?;
    if let Some((section, key, what)) = file.empty() {
        return Err(BadFile::Empty {
            path: name(),
            section,
            key,
            what,
        });
    }
    if file.disk.is_empty() && file.disk_folder.is_empty() {
        return Err(BadFile::NoDisk { path: name() });
    }
    let mut served = HashMap::new();
    for disk in &file.disk {
        if let Some(socket) = disk.socket_path.as_deref().map(absolute)
            && let Some(first) = served.insert(socket.clone(), disk)
        {
            return Err(BadFile::SameSocket {
                path: name(),
                first: first.written(),
                second: disk.written(),
                socket,
            });
        }
    }
    Ok(file)
}

impl File {
    /// The first key that has an empty text: its section, itself, and what it is to have.
    fn empty(&self) -> Option<(String, &'static str, &'static str)> {
        let folders = self.disk_folder.iter().map(|path| ("disk-folder", path));
        let mut paths = folders
            .chain(self.control.iter().map(|path| ("control", path)))
            .chain(self.state.iter().map(|path| ("state", path)));
        if let Some((key, _)) = paths.find(|(_, path)| path.as_os_str().is_empty()) {
            return Some((String::new(), key, "a path"));
        }
        self.disk.iter().enumerate().find_map(|(index, disk)| {
            let (key, what) = disk.empty()?;
            Some((format!("{}: ", disk_number(index)), key, what))
        })
    }
}

/// What errors call the section of the disk at `index`.
pub fn disk_number(index: usize) -> String {
    format!("[[disk]] number {}", index + 1)
}

#[cfg(test)]
mod tests;
