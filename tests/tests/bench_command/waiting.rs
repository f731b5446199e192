//! Its ways to wait: how often each is called, and sleeps.

use std::io::{BufRead as _, BufReader};

use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{MEMORY, count, json, number, started};

#[test]
fn every_way_to_wait_and_to_share_moves_data_that_is_right() {
    let ways: [&[&str]; 7] = [
        &["--completion", "polled"],
        &["--completion", "call", "--iodepth", "8"],
        &["--completion", "adaptive", "--iodepth", "32"],
        &["--hipri-percent", "50", "--iodepth", "4"],
        &["--numjobs", "3", "--bs", "16k"],
        &["--numjobs", "3", "--share-queue", "--iodepth", "4"],
        &[
            "--numjobs",
            "2",
            "--share-queue",
            "--kick-lock",
            "held",
            "--completion",
            "call",
        ],
    ];
    for way in ways {
        let load = ["--rw", "randrw", "--verify", "crc32c", "--runtime", "300ms"];
        let report = json(&[&MEMORY[..], &load, way].concat());
        assert!(count(&report["pollux"]["blocks_verified"]) > 0, "{way:?}");
    }
}

#[test]
fn polled_requests_are_not_called_for() {
    let report = json(
        &[
            &MEMORY[..],
            &["--completion", "polled", "--runtime", "500ms"],
        ]
        .concat(),
    );
    assert!(
        number(&report["pollux"]["calls_per_io"]) <= 1e-4,
        "{}",
        report["pollux"]
    );
}

/// Calls and sleeps per I/O.
fn calls_and_sleeps(args: &[&str]) -> (f64, f64) {
    let report = json(&[args, &["--rw", "randread", "--runtime", "500ms"]].concat());
    let pollux = &report["pollux"];
    println!("{args:?}: {pollux}");
    (
        number(&pollux["calls_per_io"]),
        number(&pollux["sleeps_per_io"]),
    )
}

/// Each request takes long enough that a client that does not poll is asleep when it ends.
const SLOW: [&str; 2] = ["--disk", "fault:delay=1ms,on=null:size=64M"];

/// The server is awake, and answers faster than a sleeping client wakes up.
const FAST: [&str; 2] = ["--disk", "null:size=64M"];

#[test]
fn a_sleeping_client_is_called_once_for_each_request() {
    for (sharing, waiting) in [
        (&[][..], ["--completion", "call"]),
        (&["--share-queue"], ["--completion", "call"]),
        (&[], ["--hipri-percent", "0"]),
    ] {
        let (calls, sleeps) = calls_and_sleeps(&[&SLOW, sharing, &waiting].concat());
        for (what, count) in [("calls", calls), ("sleeps", sleeps)] {
            assert!(
                (0.5..1.5).contains(&count),
                "{waiting:?} {sharing:?}: {count} {what} per I/O"
            );
        }
    }
}

/// Though here it is cheaper to poll.
#[test]
fn a_client_that_is_told_to_sleep_never_polls_first() {
    for waiting in [["--completion", "call"], ["--hipri-percent", "0"]] {
        let (_, sleeps) = calls_and_sleeps(&[&FAST[..], &waiting].concat());
        assert!(sleeps > 0.2, "{waiting:?}: {sleeps} sleeps per I/O");
    }
}

/// While it polls there are no calls; and when it sleeps, there are.
#[test]
fn calls_follow_sleeps() {
    for sharing in [&[][..], &["--share-queue"]] {
        let waiting = ["--completion", "adaptive"];
        let (calls, sleeps) = calls_and_sleeps(&[&FAST, sharing, &waiting].concat());
        assert!(
            calls <= 1.5 * sleeps + 0.2,
            "{sharing:?}: {calls} calls and {sleeps} sleeps per I/O"
        );
    }
}

/// Of a client that sleeps over each request.
#[test]
fn calls_of_a_server_that_goes_away_are_counted() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", SLOW[1]]).unwrap();
    let socket = socket.to_str().unwrap();
    let reading = ["--socket", socket, "--rw", "randread", "--runtime", "10m"];
    let waiting = ["--completion", "call", "--output-format", "json"];
    let mut child = started(&[&reading[..], &waiting].concat(), "signals");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut ended = || {
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        let line = lines.next().unwrap().unwrap();
        let (number, _) = line.split_once(' ').unwrap();
        number.parse::<u64>().unwrap()
    };
    eventually(|| ended() >= 50, || "no request ends".to_owned());
    server.end_by(Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = number(&report["pollux"]["calls_per_io"]);
    assert!(calls >= 0.5, "{}", report["pollux"]);
}
