//! Signals: SIGINT and SIGHUP end a run, SIGUSR1 asks for its progress.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use pollux_tests::server::pollux_binary;
use rustix::process::{Pid, Signal, kill_process};

use super::{MEMORY, started};

#[test]
fn an_interrupted_run_prints_what_it_has() {
    let slow = ["--rw", "randread", "--rate-iops", "1", "--runtime", "10m"];
    let disk = ["--disk", "null:size=1G", "--completion", "call"];
    let child = started(&[&disk[..], &slow].concat(), "signals");
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
    let mut child = started(&[&["--runtime", "1h"], &MEMORY[..]].concat(), "signals");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains("requests have ended in"), "{line}");
    }
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_ends_a_run_whose_disk_does_not_answer() {
    let disk = "fault:hang=request,times=1,on=memory:size=1M";
    let args = ["--disk", disk, "--rw", "randread", "--runtime", "100ms"];
    let mut child = started(&args, "signals");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut told = |what: &str| lines.any(|line| line.unwrap().contains(what));
    assert!(told("no request has ended for 5 s"));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(told("this ends without a report"));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), vec![]));
}

#[test]
fn a_reader_that_has_enough_is_no_error_and_a_file_that_is_full_is_named() {
    let run = |out: Stdio, options: &[&str]| {
        let mut command = Command::new(pollux_binary());
        command.args(["bench", "--runtime", "10ms"]).args(MEMORY);
        let output = command.args(options).stdout(out).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    for format in ["normal", "json"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, said) = run(writer.into(), &["--output-format", format]);
        assert_eq!((code, &*said), (Some(0), ""));
    }
    let (code, said) = run(Stdio::null(), &["--output", "/dev/full"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--output /dev/full: No space left"), "{said}");
}
