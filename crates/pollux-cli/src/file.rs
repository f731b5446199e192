//! The configuration file: several disks in one process.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::export::ExportArgs;
use crate::paths::{absolute, missing_right};
use crate::process::ProcessArgs;

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
        source: std::io::Error,
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
        "{path} describes no disk; add a [[disk]] section (see dist/pollux.toml), or a disk-folder for disks that \
         are added later"
    )]
    NoDisk { path: String },
}

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<File, BadFile> {
    let text = std::fs::read_to_string(path).map_err(|source| BadFile::Read {
        path: path.display().to_string(),
        remedy: match source.kind() {
            ErrorKind::NotFound => {
                "; give the path of another, or write one (see dist/pollux.toml)".to_owned()
            }
            _ => missing_right(path, &source, "read it"),
        },
        source,
    })?;
    parse(&text, path)
}

/// Reads what the file at `path` holds.
pub fn parse(text: &str, path: &Path) -> Result<File, BadFile> {
    let name = || path.display().to_string();
    let file: File = toml::from_str(text).map_err(|error| BadFile::Parse {
        path: name(),
        remedy: remedy(text, &error),
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

/// What to write in the line that `error` is about.
fn remedy(text: &str, error: &toml::de::Error) -> String {
    let span = error.span().unwrap_or_default();
    let line = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[line..].lines().next().unwrap_or_default();
    let (key, value) = (
        line.split('=').next().unwrap_or_default().trim(),
        &text[span],
    );
    let is_unknown = error.message().starts_with("unknown field");
    let is_wanted = |what| error.message().ends_with(what);
    let remedy = match key {
        _ if is_unknown && key.contains('_') => {
            return format!("; keys have dashes: {}", key.replace('_', "-"));
        }
        _ if key.starts_with("[disk]") => {
            "; write [[disk]] in double brackets, as there may be several"
        }
        "socket-mode" => "; write permissions in quotes, socket-mode = \"0660\"",
        "poll-cpu" if error.message().contains("integer") => {
            "; write a percentage in quotes, poll-cpu = \"25%\""
        }
        "metrics-listen" if !is_unknown => {
            "; write metrics-listen = \"127.0.0.1:9464\"; names are not looked up"
        }
        "limits" if is_wanted("expected a string") => "; write one text, limits = \"iops-total=5\"",
        "control" | "metrics-listen" | "disk-folder" | "state" if is_unknown => {
            "; write this key before the first section"
        }
        "threads" | "cpus" | "poll" | "poll-max-us" | "poll-cpu" | "calls" | "sandbox"
            if is_unknown =>
        {
            "; write this key in the section [process]"
        }
        _ if is_wanted("expected a string") || is_wanted("expected path string") => {
            return format!("; write it in quotes: {key} = {value:?}");
        }
        "disk" if is_wanted("expected a sequence") => "; write this key in a section [[disk]]",
        "disk-folder" if is_wanted("expected a sequence") => {
            return format!("; write it in brackets: {key} = [{value}]");
        }
        _ if error.message().starts_with("invalid type: string") => {
            return format!(
                "; write it without quotes: {key} = {}",
                value.trim_matches('"')
            );
        }
        _ => "",
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::chain;
    use crate::process::Poll;
    use crate::socket::Passed;

    #[test]
    fn the_example_in_dist_is_valid() {
        let file: File = toml::from_str(include_str!("../../../dist/pollux.toml")).unwrap();
        assert_eq!(file.process.poll, Some(Poll::Adaptive));
        // The unit passes one socket, and no other is made.
        let [disk] = &file.disk[..] else {
            panic!("several disks would have to name their sockets")
        };
        assert_eq!((&disk.socket_path, &disk.fd_name), (&None, &None));
        let nothing = disk.endpoint(&mut Passed::default()).unwrap_err();
        assert!(nothing.to_string().contains("--socket-path"), "{nothing}");
    }

    fn refusal(text: &str) -> String {
        chain(&parse(text, Path::new("a.toml")).unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_said_once_and_with_its_remedy() {
        for (text, remedy, once) in [
            (
                "[disk]\ndisk = \"null:size=1G\"\n",
                "; write [[disk]]",
                "invalid type",
            ),
            (
                "[[disk]]\nsocket-mode = 0660\n",
                "; write permissions in quotes",
                "0660\n",
            ),
            (
                "[[disk]]\nsocket-mode = 660\n",
                "; write permissions in quotes",
                "invalid type",
            ),
            (
                "[process]\npoll-cpu = 25\n",
                "; write a percentage in quotes",
                "invalid type",
            ),
            (
                "[[disk]]\ncontrol = \"/run/a.control\"\n",
                "; write this key before the first section",
                "unknown field",
            ),
            (
                "[[disk]]\nthreads = 2\n",
                "; write this key in the section [process]",
                "unknown field",
            ),
            (
                "[[disk]]\nsocket_path = \"x\"\n",
                "; keys have dashes: socket-path",
                "unknown field",
            ),
            (
                "[[disk]]\nnum-queues = \"4\" # four\n",
                "; write it without quotes: num-queues = 4",
                "invalid type",
            ),
            (
                "[process]\ncpus = 1\n",
                "; write it in quotes: cpus = \"1\"",
                "invalid type",
            ),
            (
                "[[disk]]\nsocket-path = 1\n",
                "; write it in quotes: socket-path = \"1\"",
                "invalid type",
            ),
            (
                "disk-folder = \"/x\"\n",
                "; write it in brackets: disk-folder = [\"/x\"]",
                "invalid type",
            ),
            (
                "disk = \"null:size=1G\"\n",
                "; write this key in a section [[disk]]",
                "invalid type",
            ),
            (
                "[[disk]]\nlimits = { iops-total = 5 }\n",
                "; write one text, limits = \"iops-total=5\"",
                "invalid type",
            ),
            (
                "metrics-listen = \":9464\"\n",
                "; write metrics-listen = \"127.0.0.1:9464\"; names are not looked up",
                "invalid socket address",
            ),
            (
                "[[disk]]\nsocket-pth = \"x\"\n",
                "a.toml: TOML",
                "unknown field",
            ),
            (
                "[[disk]]\nsocket-modes = \"0660\"\n",
                "a.toml: TOML",
                "unknown field",
            ),
        ] {
            let told = refusal(text);
            assert!(told.contains(remedy), "{told}");
            assert_eq!(told.matches(once).count(), 1, "{told}");
        }
    }

    #[test]
    fn an_empty_text_is_refused_by_its_key() {
        for (text, told) in [
            (
                "[[disk]]\nname = \"a\"\n[[disk]]\nsocket-path = \"\"\n",
                "[[disk]] number 2: socket-path is empty; give a path",
            ),
            (
                "[[disk]]\nlimit-group = \"\"\n",
                "[[disk]] number 1: limit-group is empty; give a name",
            ),
            ("control = \"\"\n", "control is empty; give a path"),
        ] {
            assert_eq!(refusal(text), format!("a.toml: {told}"));
        }
    }

    #[test]
    fn two_disks_on_one_socket_are_both_named() {
        let told = refusal(
            "[[disk]]\nsocket-path = \"/run/a.sock\"\nblk-file = \"/srv/a.img\"\n\
             [[disk]]\nsocket-path = \"/run/a.sock\"\ndisk = \"null:size=1G\"\n",
        );
        let words = "`/srv/a.img` and `null:size=1G` have the same socket-path /run/a.sock";
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<File>("[[disk]]\nsocket-pth = \"x\"\n").unwrap_err();
        assert!(error.to_string().contains("socket-pth"), "{error}");
    }

    #[test]
    fn a_share_of_the_time_is_a_percentage() {
        let read = |value: &str| {
            toml::from_str::<File>(&format!("disk = []\n[process]\npoll-cpu = {value:?}\n"))
        };
        for value in ["0%", "25%", "100%"] {
            read(value).unwrap();
        }
        for value in ["25", "101%", "-1%", "%", "a quarter"] {
            let error = read(value).unwrap_err().to_string();
            assert!(
                error.contains(value) && error.contains("for example 25%"),
                "{error}"
            );
        }
    }

    #[test]
    fn who_never_sleeps_has_no_bounds() {
        for (key, value) in [("poll-max-us", "10"), ("poll-cpu", "\"25%\"")] {
            let text = format!("disk = []\n[process]\npoll = \"always\"\n{key} = {value}\n");
            let file: File = toml::from_str(&text).unwrap();
            let error = file.process.tuning().unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn numbers_have_the_bounds_that_they_have_on_the_command_line() {
        for (key, good, bad) in [
            ("threads", ["1", "256"], ["0", "257"]),
            ("poll-max-us", ["0", "1000000"], ["1000001", "-1"]),
        ] {
            let read =
                |value| toml::from_str::<File>(&format!("disk = []\n[process]\n{key} = {value}\n"));
            for value in good {
                read(value).unwrap();
            }
            for value in bad {
                let error = read(value).unwrap_err().to_string();
                assert!(error.contains(key) && error.contains(value), "{error}");
            }
        }
    }
}
