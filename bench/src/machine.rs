//! Where and with what the numbers were made.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::contender::{Contender, first_line};
use crate::contenders::Contenders;

/// What a reader needs to judge the numbers, or to make them again.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The processor, and how many there are.
    pub processor: String,
    /// Whether this is a virtual machine.
    pub virtualization: String,
    /// The kernel.
    pub kernel: String,
    /// The file system of the disks `cached` and `direct`, and the device below it.
    pub storage: String,
    /// The commit of the workspace, with `+changes` if it is not all.
    pub commit: String,
    /// The servers, as they were asked for, and what they call themselves: ours, the peer, and the others.
    pub servers: Vec<(String, String)>,
    /// The command that was run.
    pub command: String,
}

impl Setting {
    /// Asks the machine.
    pub fn here(contenders: &Contenders, folder: &Path) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let of = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(": "))
                .map_or("", |(_, value)| value)
        };
        let count = cpuinfo
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        let virtual_machine = of("flags").split(' ').any(|flag| flag == "hypervisor");
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: format!(
                "{count} × {} (family {}, model {})",
                of("model name"),
                of("cpu family"),
                of("model\t")
            ),
            virtualization: if virtual_machine {
                "a virtual machine"
            } else {
                "no virtual machine"
            }
            .into(),
            kernel: format!("Linux {}", kernel.trim()),
            storage: storage(folder),
            commit: commit(),
            servers: contenders.all().map(named).collect(),
            command: command(),
        }
    }
}

fn named(contender: &Contender) -> (String, String) {
    (contender.name.clone(), contender.version())
}

/// The file system that `folder` is on.
fn storage(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_default();
    // Mounted later hides what was mounted before.
    let found = mounts.lines().rev().filter_map(|line| {
        let mut words = line.split(' ');
        let (_device, at, kind) = (words.next()?, words.next()?, words.next()?);
        folder.starts_with(at).then_some((at.len(), kind))
    });
    found
        .max_by_key(|(length, _)| *length)
        .map_or_else(|| "an unknown file system".into(), |(_, kind)| kind.into())
}

fn commit() -> String {
    let git = || {
        let mut git = Command::new("git");
        git.args(["-C", env!("CARGO_MANIFEST_DIR")]);
        git
    };
    let mut commit = first_line(git().args(["rev-parse", "--short", "HEAD"]));
    if !first_line(git().args(["status", "--porcelain", "--untracked-files=no"])).is_empty() {
        commit.push_str("+changes");
    }
    commit
}

/// The command line, without where its output went.
fn command() -> String {
    let mut command = "cargo run --release -p pollux-bench --".to_owned();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if matches!(argument.as_str(), "--json" | "--results" | "--folder") {
            arguments.next();
        } else {
            command.push(' ');
            command.push_str(&argument);
        }
    }
    command.trim_end_matches(" --").to_owned()
}
