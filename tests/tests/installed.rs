//! `make install`: everything in its place, and of use there.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::peers;
use pollux_tests::server::pollux_binary;
use tempfile::TempDir;

/// Installs into a folder of its own, in which the program has its place.
fn installed() -> (TempDir, PathBuf) {
    let root = TempDir::new().unwrap();
    let prefix = root.path().join("prefix");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/install.sh");
    let output = Command::new("sh")
        // As root has it on a machine that was made strict.
        .args(["-c", "umask 077; exec \"$0\" \"$@\""])
        .arg(script)
        .env("POLLUX", pollux_binary())
        .args([Path::new(""), &prefix, &root.path().join("etc")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
    (root, prefix)
}

/// systemd understands the units, the program that they start included, and has no complaint.
#[test]
fn the_units_are_valid_where_they_are_installed() {
    let Some(analyze) = peers::installed("systemd-analyze") else {
        return;
    };
    let (_root, prefix) = installed();
    let mut command = Command::new(analyze);
    command.args(["verify", "--man=no"]);
    for kind in ["socket", "service"] {
        let units = prefix.join("lib/systemd/system");
        // An instance of the template in the same folder.
        let instance = units.join(format!("pollux@root.{kind}"));
        fs::copy(units.join(format!("pollux@.{kind}")), &instance).unwrap();
        command.arg(instance);
    }
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
}

/// A service that fails again and again, as its disk is not there yet, does not take its socket with it.
#[test]
fn guests_find_the_socket_however_often_the_service_fails() {
    let (_root, prefix) = installed();
    let unit = prefix.join("lib/systemd/system/pollux@.service");
    let unit = fs::read_to_string(unit).unwrap();
    let (first, _) = unit.split_once("[Service]").unwrap();
    assert!(first.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
}

/// Every user may read it, and the service has one of its own.
#[test]
fn what_is_installed_is_there_for_all_users() {
    let (root, _) = installed();
    let mut folders = vec![root.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, there) = (entry.path(), entry.metadata().unwrap());
            let needed = if there.is_dir() { 0o755 } else { 0o644 };
            let mode = there.permissions().mode();
            assert_eq!(mode & needed, needed, "{}: {mode:o}", path.display());
            if there.is_dir() {
                folders.push(path);
            }
        }
    }
}

/// The names in the group of system calls `group`, as systemd knows it, and those of the groups in it.
fn system_calls(analyze: &Path, group: &str) -> BTreeSet<String> {
    let mut command = Command::new(analyze);
    let output = command.args(["syscall-filter", group]).output().unwrap();
    assert!(output.status.success(), "{group}: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let names = said.lines().map(str::trim).skip(1);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
    let mut calls = BTreeSet::new();
    for name in names {
        if name.starts_with('@') {
            calls.extend(system_calls(analyze, name));
        } else {
            calls.insert(name.to_owned());
        }
    }
    calls
}

/// What the daemon's own sandbox allows, because the daemon does it, systemd does not forbid: it would end the daemon.
#[test]
fn the_service_may_make_all_system_calls_of_the_daemon() {
    let Some(analyze) = peers::installed("systemd-analyze") else {
        return;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(source.join(path)).unwrap();
    let mut allowed = BTreeSet::new();
    for filter in read("dist/pollux@.service")
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        let (adds, names) = filter
            .strip_prefix('~')
            .map_or((true, filter), |names| (false, names));
        for name in names.split_whitespace() {
            let calls = if name.starts_with('@') {
                system_calls(&analyze, name)
            } else {
                BTreeSet::from([name.to_owned()])
            };
            if adds {
                allowed.extend(calls);
            } else {
                allowed.retain(|call| !calls.contains(call));
            }
        }
    }
    let table = read("crates/sandbox/src/calls/table.rs");
    let made = table.split("libc::SYS_").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        &rest[..end.unwrap()]
    });
    let forbidden: BTreeSet<&str> = made.filter(|call| !allowed.contains(*call)).collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
}

#[test]
fn a_user_is_described_as_systemd_wants_it() {
    let Some(sysusers) = peers::installed("systemd-sysusers") else {
        return;
    };
    let (root, prefix) = installed();
    let output = Command::new(sysusers)
        .arg(format!("--root={}", root.path().display()))
        .arg(prefix.join("lib/sysusers.d/pollux.conf"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let users = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    assert!(users.contains("pollux:"), "{users}");
}

#[test]
fn what_is_installed_names_what_is_installed() {
    let (root, prefix) = installed();
    let program = prefix.join("bin/pollux");
    let back_end = prefix.join("libexec/pollux-vhost-user-blk");
    let found = fs::read_to_string(root.path().join("etc/qemu/vhost-user/50-pollux.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["binary"], back_end.to_str().unwrap());
    // QEMU's conventions: management software asks the back end what it can do.
    let capabilities = Command::new(&back_end)
        .arg("--print-capabilities")
        .output()
        .unwrap();
    assert!(capabilities.status.success(), "{capabilities:?}");
    let capabilities: serde_json::Value = serde_json::from_slice(&capabilities.stdout).unwrap();
    assert_eq!(capabilities["type"], "block");

    let dashboard = fs::read(prefix.join("share/pollux/grafana-pollux.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].is_array(), "{dashboard}");

    let papers = prefix.join("share/doc/pollux");
    let example = fs::read_to_string(papers.join("example.toml")).unwrap();
    let configuration = root.path().join("etc/pollux/root.toml");
    let configuration = configuration.to_str().unwrap();
    assert!(example.contains(configuration), "{example}");
    let book = papers.join("docs/src");
    let production = fs::read_to_string(book.join("production.md")).unwrap();
    assert!(production.contains(configuration), "{production}");
    for linked in [
        "troubleshooting.md",
        "../notes/README.md",
        "../../DESIGN.md",
        "../../bench/policy/load.svg",
    ] {
        assert!(book.join(linked).is_file(), "{linked}");
    }

    for page in ["pollux.1", "pollux-serve.1", "pollux-bench.1"] {
        let text = fs::read_to_string(prefix.join("share/man/man1").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}: {text}");
    }
    let completions = prefix.join("share/bash-completion/completions/pollux");
    let asked = format!(
        "source {} && COMP_WORDS=(pollux serve --blk-f) COMP_CWORD=2 && _pollux pollux --blk-f serve && \
         echo ${{COMPREPLY[@]}}",
        completions.display()
    );
    let offered = Command::new("bash").args(["-c", &asked]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&offered.stdout).trim(),
        "--blk-file",
        "{offered:?}"
    );
    assert!(
        Command::new(program)
            .arg("--version")
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn without_a_program_there_is_advice() {
    let root = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/install.sh");
    let output = Command::new(script)
        .env("POLLUX", root.path().join("pollux"))
        .args([Path::new(""), root.path(), root.path()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && told.contains("make build"),
        "{told}"
    );
}
