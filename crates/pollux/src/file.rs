//! The configuration file: several disks in one process.

use std::path::Path;

use serde::Deserialize;

use crate::cli::ProcessArgs;
use crate::export::ExportArgs;

/// A configuration file.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct File {
    /// What holds for the whole process.
    #[serde(default)]
    pub process: ProcessArgs,
    /// The disks.
    pub disk: Vec<ExportArgs>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no configuration.
    #[error("{path}: {source}")]
    Parse {
        /// Its path.
        path: String,
        /// What is wrong, and where.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// It names no disk.
    #[error("{path} describes no disk; add a [[disk]] section (see dist/pollux.toml)")]
    NoDisk {
        /// Its path.
        path: String,
    },
}

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<File, BadFile> {
    let text = std::fs::read_to_string(path).map_err(|source| BadFile::Read {
        path: path.display().to_string(),
        source,
    })?;
    parse(&text, path)
}

/// Reads what the file at `path` holds.
pub fn parse(text: &str, path: &Path) -> Result<File, BadFile> {
    let name = || path.display().to_string();
    let file: File = toml::from_str(text).map_err(|error| BadFile::Parse {
        path: name(),
        source: Box::new(error),
    })?;
    if file.disk.is_empty() {
        return Err(BadFile::NoDisk { path: name() });
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Poll;
    use crate::passed::Passed;

    #[test]
    fn the_example_in_dist_is_valid() {
        let file: File = toml::from_str(include_str!("../../../dist/pollux.toml")).unwrap();
        assert_eq!(file.process.poll, Some(Poll::Adaptive));
        assert_eq!(file.disk.len(), 2);
        for disk in file.disk {
            disk.endpoint(&mut Passed::default()).unwrap();
        }
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
