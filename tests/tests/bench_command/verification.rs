//! `--verify` finds every disk that loses, tears or returns stale data.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{MEMORY, fails, json, started};

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
    assert_eq!(report["pollux"]["verified"], true);
}

/// The report may be kept when what is said on standard error is gone.
#[test]
fn the_report_of_a_disk_that_corrupts_names_the_failure() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("report");
    let to_a_file = ["--output", path.to_str().unwrap()];
    let disk = "fault:torn=0,then=ok,chance=1%,on=memory:size=1M";
    let load = ["--disk", disk, "--rw", "randrw", "--verify", "crc32c"];
    let report = |format: &[&str]| {
        fails(&[&load, &to_a_file[..], format].concat());
        std::fs::read_to_string(&path).unwrap()
    };
    let table = report(&[]);
    assert!(
        table.contains("The run failed: --verify: the block at offset"),
        "{table}"
    );
    assert!(!table.to_lowercase().contains("verified"), "{table}");
    let json: Value = serde_json::from_str(&report(&["--output-format", "json"])).unwrap();
    assert_eq!(json["pollux"]["verified"], false);
}

#[test]
fn a_run_that_is_ended_before_it_has_read_back_is_not_verified() {
    for signal in [Signal::INT, Signal::TERM] {
        let load = ["--rw", "randwrite", "--verify", "crc32c", "--runtime", "1h"];
        let child = started(&[&MEMORY[..], &load].concat(), "signals");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(
            table.contains("ended early: not all that was written has been read back"),
            "{table}"
        );
        assert!(!table.to_lowercase().contains("verified"), "{table}");
    }
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
