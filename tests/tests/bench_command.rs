//! `pollux bench`: what it measures, what it refuses, and that its verification bites.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use pollux_tests::peers;
use pollux_tests::process::{Process, eventually};
use pollux_tests::server::{Server, pollux_binary};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const MEMORY: [&str; 2] = ["--disk", "memory:size=64M"];

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(pollux_binary());
    command.arg("bench").args(args).output().unwrap()
}

/// What it prints with `--output-format json`. It must succeed.
fn json(args: &[&str]) -> Value {
    let output = bench(&[args, &["--output-format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "nothing is shown to whom there is no terminal");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says on standard error when it fails.
fn fails(args: &[&str]) -> String {
    let output = bench(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn a_verified_run_reports_in_fios_layout() {
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "crc32c",
        "--runtime",
        "1s",
        "--iodepth",
        "8",
    ];
    let report = json(&[&MEMORY[..], &load].concat());
    let job = &report["jobs"][0];
    for direction in ["read", "write"] {
        let side = &job[direction];
        assert!(number(&side["iops"]) > 0.0, "{side}");
        assert_eq!(side["total_ios"], side["clat_ns"]["N"]);
        let percentile = |name: &str| number(&side["clat_ns"]["percentile"][name]);
        assert!(percentile("50.000000") > 0.0, "{side}");
        assert!(percentile("50.000000") <= percentile("99.900000"), "{side}");
        assert_eq!(count(&side["io_bytes"]), 4096 * count(&side["total_ios"]));
    }
    let pollux = &report["pollux"];
    assert!(count(&pollux["blocks_verified"]) > 0, "{pollux}");
    assert!(count(&pollux["polls"]) > 0, "{pollux}");
    assert!(number(&pollux["cpu_us_per_io"]["client"]) > 0.0, "{pollux}");
    assert!(number(&pollux["cpu_us_per_io"]["server"]) > 0.0, "{pollux}");
}

/// What a terminal of 80 columns gets to see, the control sequences included.
fn on_a_terminal(args: &[&str]) -> String {
    let pollux = pollux_binary();
    let command = format!(
        "stty rows 24 cols 80; exec {} bench {}",
        pollux.display(),
        args.join(" ")
    );
    let mut terminal = Command::new("script"); // of package bsdutils, which every Debian has
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    terminal.env("TERM", "xterm").stdin(Stdio::null());
    let output = terminal.output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{seen}");
    seen
}

#[test]
fn whoever_watches_on_a_terminal_sees_how_far_it_is_and_then_the_table() {
    let run = ["--rw", "randwrite", "--verify", "crc32c", "--runtime", "2s"];
    let seen = on_a_terminal(&[&MEMORY[..], &run].concat());
    let (progress, table) = seen.rsplit_once("requests a second").unwrap();
    assert!(progress.contains("measuring [="), "{seen:?}");
    assert!(
        !progress.contains("\x1b[1A"),
        "wider than the terminal: {seen:?}"
    );
    assert!(
        table.contains("IOPS") && !table.contains("measuring"),
        "{seen:?}"
    );
}

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

/// Each request takes long enough that whoever does not look for it is asleep when it ends.
const SLOW: [&str; 2] = ["--disk", "fault:delay=1ms,on=null:size=64M"];

/// The server is awake, and answers faster than anybody could be woken.
const FAST: [&str; 2] = ["--disk", "null:size=64M"];

#[test]
fn whoever_sleeps_is_called_once_for_each_request() {
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
fn whoever_is_told_to_sleep_never_polls_before() {
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

#[test]
fn both_kinds_on_one_queue_are_reported_apart() {
    let load = [
        "--rw",
        "randread",
        "--hipri-percent",
        "30",
        "--iodepth",
        "4",
        "--runtime",
        "500ms",
    ];
    let report = json(&[&MEMORY[..], &load].concat());
    let read = &report["pollux"]["read"];
    let (polled, call) = (
        count(&read["polled"]["total_ios"]),
        count(&read["call"]["total_ios"]),
    );
    assert!(
        polled > 0 && call > polled,
        "{polled} polled, {call} by calls"
    );
    assert_eq!(
        polled + call,
        count(&report["jobs"][0]["read"]["total_ios"])
    );
}

#[test]
fn an_open_loop_starts_what_is_due() {
    let load = [
        "--rw",
        "randread",
        "--rate-iops",
        "200",
        "--completion",
        "call",
        "--runtime",
        "1s",
    ];
    let report = json(&[&MEMORY[..], &load].concat());
    let read = count(&report["jobs"][0]["read"]["total_ios"]);
    let left = count(&report["pollux"]["unstarted"]);
    assert_eq!(read + left, 200);
}

/// One request at a time takes 50 ms, and another one is due every 10 ms: the line grows by 40 ms with each. Whoever
/// counts from when a request was sent finds 50 ms for all of them.
#[test]
fn the_latency_of_an_open_loop_includes_the_time_in_line() {
    let load = [
        "--disk",
        "fault:delay=50ms,on=memory:size=1M",
        "--rw",
        "randread",
        "--rate-iops",
        "100",
        "--iodepth",
        "1",
        "--runtime",
        "500ms",
    ];
    let report = json(&load);
    let read = &report["jobs"][0]["read"];
    let ms = |time: &Value| number(time) / 1e6;
    // The histogram's precision is three digits.
    assert!(ms(&read["clat_ns"]["min"]) >= 49.9, "{read}");
    // The last one is started once half a second is over, and was due after 100 ms at the latest: by then ten had
    // ended at most.
    let last = ms(&read["clat_ns"]["percentile"]["99.990000"]);
    assert!(last >= 400.0, "{last} ms: {read}");
    assert!(ms(&read["slat_ns"]["max"]) >= 350.0, "{read}");
}

/// The lock of a shared queue, and all that is counted of it, per request that is measured: not of those before and
/// after that only verify.
#[test]
fn what_is_told_of_a_shared_queue_is_of_the_measured_phase() {
    for rw in ["randread", "randwrite"] {
        let load = [
            "--share-queue",
            "--kick-lock",
            "released",
            "--rw",
            rw,
            "--rate-iops",
            "500",
            "--runtime",
            "200ms",
        ];
        for verify in [&[][..], &["--verify", "crc32c"]] {
            let report = json(&[&["--disk", "memory:size=32M"], &load[..], verify].concat());
            let job = &report["jobs"][0];
            let requests = count(&job["read"]["total_ios"]) + count(&job["write"]["total_ios"]);
            let lock = &report["pollux"]["lock"];
            let holds = count(&lock["hold_ns"]["N"]) + count(&lock["preempted"]);
            assert_eq!(lock["hold_ns"]["N"], lock["wait_ns"]["N"]);
            // Verifying writes, or reads, up to 8192 blocks.
            assert!(
                holds >= requests && holds <= 10 * requests + 100,
                "{rw} {verify:?}: {holds} holds, {requests} requests"
            );
        }
    }
}

#[test]
fn jobs_that_only_read_verify_what_they_wrote_before() {
    let load = [
        "--rw",
        "randread",
        "--verify",
        "crc32c",
        "--size",
        "4m",
        "--runtime",
        "300ms",
    ];
    let report = json(&[&MEMORY[..], &load].concat());
    let job = &report["jobs"][0];
    assert_eq!(job["write"]["total_ios"], 0, "the filling is not measured");
    assert_eq!(
        job["read"]["total_ios"],
        report["pollux"]["blocks_verified"]
    );
}

#[test]
fn torn_writes_that_the_server_calls_complete_are_caught() {
    let disk = "fault:torn=1K,then=ok,chance=1%,on=memory:size=16M";
    for rw in ["randrw", "randwrite", "read"] {
        let load = [
            "--disk",
            disk,
            "--rw",
            rw,
            "--verify",
            "crc32c",
            "--runtime",
            "1s",
        ];
        let said = fails(&load);
        assert!(
            said.contains("--verify: the block at offset"),
            "{rw}: {said}"
        );
        assert!(said.contains("crc32c"), "{rw}: {said}");
    }
}

#[test]
fn writes_that_never_reach_the_disk_are_caught() {
    let disk = "fault:torn=0,then=ok,chance=1%,on=memory:size=1M";
    let said = fails(&["--disk", disk, "--rw", "randrw", "--verify", "crc32c"]);
    let stale = said.contains("stale block") || said.contains("found zeroes");
    assert!(stale, "{said}");
}

#[test]
fn a_disk_that_keeps_nothing_is_caught() {
    let said = fails(&[
        "--disk",
        "null:size=1M",
        "--rw",
        "randrw",
        "--verify",
        "crc32c",
    ]);
    assert!(said.contains("--verify: the block at offset"), "{said}");
}

/// Each block comes back to the buffer that it was written from, which would still hold it.
#[test]
fn a_read_that_transfers_nothing_is_caught_in_the_buffer_of_the_write() {
    for disk in [
        &["--disk", "null:size=4K"][..],
        &["--disk", "null:size=1M", "--size", "4k"],
    ] {
        for rw in ["randrw", "randwrite", "read"] {
            let load = ["--rw", rw, "--verify", "crc32c", "--runtime", "100ms"];
            let said = fails(&[disk, &load].concat());
            assert!(said.contains("has transferred nothing"), "{rw}: {said}");
        }
    }
}

#[test]
fn a_disk_that_drops_all_writes_is_caught() {
    for disk in ["memory:size=4K", "memory:size=1M"] {
        let disk = format!("fault:torn=0,then=ok,on={disk}");
        for rw in ["randrw", "randwrite", "read"] {
            let load = ["--rw", rw, "--verify", "crc32c", "--runtime", "100ms"];
            let said = fails(&[&["--disk", &disk], &load[..]].concat());
            assert!(said.contains("found zeroes"), "{rw}: {said}");
        }
    }
}

#[test]
fn a_request_that_fails_ends_the_run_by_name() {
    let disk = "fault:error=EIO,op=write,after=100,on=memory:size=64M";
    let said = fails(&["--disk", disk, "--rw", "write"]);
    assert!(said.contains("a write of 4096 bytes at offset"), "{said}");
}

#[test]
fn a_file_with_holes_is_no_measure_of_its_storage() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("disk.img");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(1 << 20).unwrap();
    let disk = format!("file:path={},cache=none", image.display());
    for (rw, warned) in [("read", true), ("write", false), ("read", false)] {
        let output = bench(&["--disk", &disk, "--rw", rw, "--runtime", "300ms"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("this file has holes"), warned, "{rw}: {said}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let cases: [(&[&str], &str); 14] = [
        (&["--socket", "/nowhere/disk.sock"], "/nowhere/disk.sock"),
        (&["--disk", "mem:size=1M"], "--disk"),
        (&["--disk", "memory:size=1M", "--size", "2M"], "--size"),
        (&["--disk", "memory:size=1M", "--bs", "1000"], "--bs"),
        (&["--disk", "memory:size=1M", "--bs", "2m"], "--bs"),
        (&["--disk", "memory:size=1M", "--iodepth", "0"], "--iodepth"),
        (&["--disk", "memory:size=1M", "--cpus", "x"], "--cpus"),
        (&["--disk", "memory:size=1M", "--cpus", "4000"], "--cpus"),
        (
            &["--disk", "memory:size=1M", "--kick-lock", "held"],
            "--share-queue",
        ),
        (&["--disk", "memory:size=1M", "--socket", "s"], "--socket"),
        (&["--socket", "s", "--poll", "never"], "--poll"),
        (&["--socket", "s", "--poll-cpu", "25%"], "--poll-cpu"),
        (&["--socket", "s", "--threads", "2"], "--threads"),
        (
            &["--disk", "memory:size=1M", "--sandbox", "on"],
            "--sandbox",
        ),
    ];
    for (args, words) in cases {
        let said = fails(args);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// Against `server`: data, and more queues than there are.
fn drives(server: &Server) {
    let socket = server.socket().to_str().unwrap();
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "crc32c",
        "--runtime",
        "500ms",
        "--numjobs",
        "2",
    ];
    let report = json(&[&["--socket", socket], &load[..]].concat());
    assert!(count(&report["pollux"]["blocks_verified"]) > 0);
    assert!(number(&report["pollux"]["cpu_us_per_io"]["server"]) > 0.0);
    let said = fails(&["--socket", socket, "--numjobs", "3"]);
    assert!(
        said.contains("--numjobs 3") && said.contains("--share-queue"),
        "{said}"
    );
}

#[test]
fn a_running_pollux_is_driven() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let args = ["--disk", "memory:size=64M", "--num-queues", "2"];
    let server = Server::pollux(&socket, &args).unwrap();
    drives(&server);
}

#[test]
fn a_running_qemu_storage_daemon_is_driven() {
    let Some(daemon) = peers::installed("qemu-storage-daemon") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let disk = format!("driver=file,filename={}", image.display());
    let server = Server::qemu_storage_daemon(&daemon, &socket, &disk, 2).unwrap();
    drives(&server);
}

#[test]
fn a_server_that_dies_ends_the_run_by_name() {
    for completion in ["polled", "call", "adaptive"] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let server = Server::pollux(&socket, &["--disk", "memory:size=64M"]).unwrap();
        let mut command = Command::new(pollux_binary());
        command.args([
            "bench",
            "--runtime",
            "10m",
            "--completion",
            completion,
            "--socket",
        ]);
        let command = command
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        eventually(
            || has_thread(&child, "job-0"),
            || "it does not begin".to_owned(),
        );
        drop(server);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(
            said.contains("the server closed the connection"),
            "{completion}: {said}"
        );
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("IOPS"), "{completion}: {table}");
    }
}

#[test]
fn a_read_only_disk_is_read_and_not_written() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=1M", "--read-only"]).unwrap();
    let socket = server.socket().to_str().unwrap();
    let report = json(&["--socket", socket, "--runtime", "200ms"]);
    assert!(count(&report["jobs"][0]["read"]["total_ios"]) > 0);
    for args in [["--rw", "write"], ["--verify", "crc32c"]] {
        let said = fails(&[&["--socket", socket][..], &args].concat());
        assert!(
            said.contains("read-only") && said.contains(args[0]),
            "{said}"
        );
    }
}

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

fn has_thread(child: &Child, name: &str) -> bool {
    Process::new(child.id()).thread_named(name).is_ok()
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

/// `make run`, from when it is built: the table comes, then how to attach, and a signal ends it.
#[test]
fn a_disk_is_tried_out_and_then_served() {
    for (disk, words) in [
        ("memory:size=16M", "Verified: "),
        ("null:size=16M", "no writes"),
    ] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("a disk.sock");
        let mut command =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/try.sh"));
        // The path is relative, as that of `make run` is.
        command
            .current_dir(folder.path())
            .arg("a disk.sock")
            .arg(disk)
            .env("POLLUX", pollux_binary());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut text = String::new();
        for line in &mut lines {
            text += &line.unwrap();
            text.push('\n');
            if text.ends_with("Serving until Ctrl-C.\n") {
                break;
            }
        }
        assert!(text.contains(words), "{text}");
        assert!(
            text.find("IOPS").unwrap() < text.find("-chardev socket").unwrap(),
            "{text}"
        );
        let again = json(&["--socket", socket.to_str().unwrap(), "--runtime", "100ms"]);
        assert!(count(&again["jobs"][0]["read"]["total_ios"]) > 0);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!socket.exists(), "the server has cleaned up");
    }
}
