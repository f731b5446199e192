//! `pollux top`, in a terminal and for scripts.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::{Server, pollux_binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A daemon under load.
struct Daemon {
    _server: Server,
    load: Child,
}

impl Daemon {
    fn start(folder: &Path, name: &str, disk: &str, more: &[&str], load: &[&str]) -> Self {
        let socket = folder.join(format!("{name}.sock"));
        let control = folder.join(format!("{name}.control"));
        let words = ["--disk", disk, "--control", control.to_str().unwrap()];
        let server = Server::pollux(&socket, &[&words[..], more].concat()).unwrap();
        let mut command = Command::new(pollux_binary());
        command.arg("bench").arg("--socket").arg(&socket);
        command
            .args(["--rw", "randread", "--runtime", "600s"])
            .args(load);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            _server: server,
            load: quiet.spawn().unwrap(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.load.kill();
        let _ = self.load.wait();
    }
}

/// What `pollux top --once --output json` says of the folder.
fn once(folder: &Path) -> Value {
    let mut command = Command::new(pollux_binary());
    command.args(["top", "--once", "--interval", "0.3", "--output", "json"]);
    let output = command.arg("--control").arg(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Is this word of a row the unit of a latency? Which one it is depends on the machine.
fn is_unit_of_latency(word: &str) -> bool {
    ["ns", "\u{b5}s", "ms"].contains(&word)
}

/// Eventually, that disk is held up by this, and that is said.
fn is_held_by(folder: &Path, name: &str, which: &str, words: &str) {
    let told = || {
        let all = once(folder);
        let disks = all["disks"].as_array().unwrap();
        let disk = disks.iter().find(|disk| disk["name"] == name);
        disk.map(|disk| disk["bottleneck"].clone())
            .unwrap_or_default()
    };
    eventually(
        || {
            let told = told();
            let why = told["why"].as_str().unwrap_or_default();
            told["which"] == which && why.contains(words)
        },
        || format!("{name} by {which}: {}", told()),
    );
}

#[test]
fn it_tells_limit_engine_and_idleness_of_all_daemons_of_a_folder() {
    let folder = TempDir::new().unwrap();
    let memory = "memory:size=16M";
    let slow = "fault:delay=20ms,on=memory:size=16M";
    let _daemons = [
        Daemon::start(
            folder.path(),
            "limited",
            memory,
            &["--limits", "iops-total=50"],
            &[],
        ),
        Daemon::start(folder.path(), "slow", slow, &[], &["--iodepth", "4"]),
    ];
    is_held_by(folder.path(), "limited", "limit", "iops-total=50");
    is_held_by(folder.path(), "slow", "engine", "in flight now");
    let few = ["--rate-iops", "40"];
    let _rare = Daemon::start(folder.path(), "rare", memory, &[], &few);
    is_held_by(folder.path(), "rare", "guest", "the worker saw no request");
    let all = once(folder.path());
    let workers = all["workers"].as_array().unwrap();
    for worker in workers {
        let part = |name: &str| worker[name].as_f64().unwrap();
        let sum = part("working") + part("polling") + part("asleep");
        assert!((sum - 1.0).abs() < 0.01, "{worker}");
    }
    assert_eq!((workers.len(), &all["failed"]), (3, &Value::Array(vec![])));
}

#[test]
fn it_prints_tables_and_says_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let top = |words: &[&str]| {
        let mut command = Command::new(pollux_binary());
        command
            .arg("top")
            .args(words)
            .arg("--control")
            .arg(folder.path());
        command.output().unwrap()
    };
    let said = |words: &[&str]| {
        let output = top(words);
        assert_ne!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["--once"]).contains("no daemon has a control socket"));
    assert!(said(&[]).contains("this is no terminal; print it by --once"));
    assert!(said(&["--interval", "0"]).contains("from 50ms to 3600s"));
    let _daemon = Daemon::start(
        folder.path(),
        "root",
        "memory:size=16M",
        &["--latencies"],
        &[],
    );
    eventually(
        || {
            let output = top(&["--once", "--interval", "0.3"]);
            let text = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<Vec<_>> = text
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect();
            let heads = lines[0][..2] == ["DISK", "IOPS"] && lines[3][0] == "WORKER";
            let has_latencies = lines[1].iter().any(|word| is_unit_of_latency(word));
            heads && lines[1][0] == "root" && has_latencies && text.contains("\nroot: ")
        },
        || format!("{:?}", top(&["--once"])),
    );
}

/// A terminal in which a command runs.
struct Terminal {
    tmux: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    fn start(tmux: PathBuf, folder: &Path, command: &[&str]) -> Self {
        let terminal = Self {
            tmux,
            socket: folder.join("tmux"),
        };
        let size = ["new-session", "-d", "-x", "110", "-y", "24"];
        let started = terminal.run(&[&size[..], command].concat());
        assert!(started.status.success(), "{started:?}");
        terminal
    }

    fn run(&self, words: &[&str]) -> std::process::Output {
        let mut command = Command::new(&self.tmux);
        command
            .env("TERM", "xterm-256color")
            .arg("-u")
            .arg("-S")
            .arg(&self.socket);
        command
            .args(["-f", "/dev/null"])
            .args(words)
            .output()
            .unwrap()
    }

    fn press(&self, key: &str) {
        let pressed = self.run(&["send-keys", key]);
        assert!(pressed.status.success(), "{pressed:?}");
    }

    fn screen(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p"]).stdout).unwrap()
    }

    fn shows(&self, what: impl Fn(&str) -> bool) {
        eventually(|| what(&self.screen()), || self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn it_is_watched_in_a_terminal() {
    let Some(tmux) = peers::installed("tmux") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let start = |name: &str, rate: &str| {
        Daemon::start(
            folder.path(),
            name,
            "memory:size=16M",
            &[],
            &["--rate-iops", rate],
        )
    };
    let _daemons = [start("busy", "900"), start("calm", "20")];
    let (binary, control) = (pollux_binary(), folder.path().to_str().unwrap());
    let words = [
        binary.to_str().unwrap(),
        "top",
        "--control",
        control,
        "--interval",
        "0.3",
    ];
    let terminal = Terminal::start(tmux.clone(), folder.path(), &words);
    let row = |screen: &str, name: &str| {
        let line = screen
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        line.map(|line| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
    };
    terminal.shows(|screen| {
        let iops = |name| row(screen, name)?[1].parse::<u32>().ok();
        let served = iops("busy") > Some(500) && iops("calm") > Some(0);
        let bar = screen.contains("busy 0") && screen.contains('\u{b7}');
        served && bar && screen.find("busy ") < screen.find("calm ") && screen.contains("\nbusy: ")
    });
    assert!(terminal.screen().contains("by IOPS"));
    terminal.press("l");
    terminal.shows(|screen| {
        row(screen, "busy").is_some_and(|row| row.iter().any(|word| is_unit_of_latency(word)))
    });
    terminal.press("Down");
    terminal.shows(|screen| screen.contains("\ncalm: "));
    terminal.press("Enter");
    terminal.shows(|screen| {
        screen.contains("held by") && screen.contains("worker 0") && screen.contains("connected")
    });
    terminal.press("Escape");
    // With another key at once it would be that key with Alt.
    terminal.shows(|screen| screen.contains("by IOPS") && !screen.contains("held by"));
    terminal.press("s");
    terminal.shows(|screen| screen.contains("by bandwidth"));
    terminal.press("p");
    terminal.shows(|screen| screen.contains("PAUSED"));
    let pid = terminal.run(&["display-message", "-p", "#{pane_pid}"]);
    let pid = String::from_utf8(pid.stdout).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists(), "{}", process.display());
    // It is sent to all processes of the program, for the counters of daemons.
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::USR1).unwrap();
    terminal.press("p");
    terminal.shows(|screen| screen.contains("by bandwidth") && !screen.contains("PAUSED"));
    drop(terminal);
    eventually(
        || !process.exists(),
        || "it goes on without its terminal".to_owned(),
    );
    let terminal = Terminal::start(tmux, folder.path(), &words);
    terminal.shows(|screen| screen.contains("by IOPS"));
    terminal.press("q");
    eventually(
        || !terminal.run(&["has-session"]).status.success(),
        || terminal.screen(),
    );
}
