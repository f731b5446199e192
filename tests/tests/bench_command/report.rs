//! What it prints: the table, fio's layout, and what is counted.

use std::process::{Command, Stdio};

use pollux_tests::server::pollux_binary;
use serde_json::Value;

use super::{MEMORY, bench, count, json, number};

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

/// `fio --filename=disk.img --rw=randread --runtime=1 --output=report`, in the same words.
#[test]
fn a_file_is_measured_in_fios_words() {
    let folder = tempfile::TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk.img"), vec![1; 1 << 20]).unwrap();
    let options = [
        format!("--filename={}", at("disk.img").display()),
        format!("--output={}", at("report").display()),
        "--direct=0".to_owned(),
        "--rw=randread".to_owned(),
        "--runtime=200ms".to_owned(),
    ];
    let output = bench(&options.each_ref().map(String::as_str));
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let report = std::fs::read_to_string(at("report")).unwrap();
    assert!(report.starts_with("randread of 4K at a time"), "{report}");
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
fn a_terminal_shows_the_progress_and_then_the_table() {
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

/// The second of them is the last one, and ends half a second before the run.
#[test]
fn the_rate_of_an_open_loop_is_the_one_that_was_asked_for() {
    let load = ["--rw", "randread", "--rate-iops", "2", "--runtime", "1s"];
    let report = json(&[&["--disk", "null:size=1M"], &load[..]].concat());
    let read = &report["jobs"][0]["read"];
    assert_eq!(read["total_ios"], 2);
    let iops = number(&read["iops"]);
    assert!((1.9..=2.1).contains(&iops), "{iops}");
}

/// One request at a time takes 50 ms, and another one is due every 10 ms: each waits 40 ms longer than the one before.
/// A client that counted from when a request was sent would find 50 ms for all of them.
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
