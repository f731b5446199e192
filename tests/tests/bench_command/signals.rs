//! Signals: SIGINT and SIGHUP end a run, SIGUSR1 asks for its progress.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use pollux_tests::process::eventually;
use pollux_tests::server::pollux_binary;
use rustix::process::{Pid, Signal, kill_process};

use super::{MEMORY, has_thread};

#[test]
fn an_interrupted_run_prints_what_it_has() {
    let mut command = Command::new(pollux_binary());
    command.args([
        "bench",
        "--disk",
        "null:size=1G",
        "--rw",
        "randread",
        "--rate-iops",
        "1",
    ]);
    command.args(["--completion", "call", "--runtime", "10m"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    eventually(
        || has_thread(&child, "signals"),
        || "it does not watch for signals".to_owned(),
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("IOPS") && table.contains("CPU of the client"),
        "{table}"
    );
}

#[test]
fn sigusr1_asks_how_far_it_is() {
    let mut command = Command::new(pollux_binary());
    command.args(["bench", "--runtime", "1h"]).args(MEMORY);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(
        || has_thread(&child, "signals"),
        || "it does not watch for signals".to_owned(),
    );
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains("requests have ended in"), "{line}");
    }
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert!(child.wait().unwrap().success());
}
