//! How a server is named on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use pollux_tests::peers;

use super::{Contender, DISK, FILE, Looper, Program, SOCKET};

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let kind = words.next().unwrap_or_default();
        let fetched = || peers::directory().join("qemu10/bin/qemu-storage-daemon");
        let program = match kind.as_str() {
            "pollux" => {
                let (disk, options) = words.partition(|word| word.starts_with("disk:"));
                let disk: Vec<String> = disk;
                let disk = disk.iter().map(|word| word["disk:".len()..].to_owned());
                let disk = disk.collect();
                Program::Pollux { disk, options }
            }
            "qsd" => storage_daemon("qemu-storage-daemon".into(), Looper::Main, words)?,
            "qsd-iothread" => {
                storage_daemon("qemu-storage-daemon".into(), Looper::Iothread, words)?
            }
            "qsd10" => storage_daemon(fetched(), Looper::Main, words)?,
            "qsd10-iothread" => storage_daemon(fetched(), Looper::Iothread, words)?,
            "exec:" => Program::Command(command_words(words.collect())?),
            other => {
                return Err(format!(
                    "`{other}` is none of pollux, qsd, qsd-iothread, qsd10, qsd10-iothread, exec:"
                ));
            }
        };
        let name = text.to_owned();
        Ok(Self { name, program })
    }
}

fn storage_daemon(
    mut path: PathBuf,
    looper: Looper,
    words: impl Iterator<Item = String>,
) -> Result<Program, String> {
    let mut aio = None;
    for word in words {
        match word.strip_prefix("aio=") {
            Some(how) => aio = Some(how.to_owned()),
            None if word.contains('=') || word.starts_with('-') => {
                return Err(format!(
                    "`{word}` is neither aio=… nor a program; write exec: for a command of your own"
                ));
            }
            None => path = word.into(),
        }
    }
    Ok(Program::QemuStorageDaemon { path, looper, aio })
}

fn command_words(words: Vec<String>) -> Result<Vec<String>, String> {
    let needed = [&[SOCKET][..], &[FILE, DISK]];
    for one_of in needed {
        let holds = |word: &String| one_of.iter().any(|name| word.contains(name));
        if !words.iter().any(holds) {
            let names = one_of.join(" or ");
            return Err(format!("exec: needs {names} somewhere in the command"));
        }
    }
    Ok(words)
}
