//! `--verify` finds every disk that loses, tears or returns stale data.

use super::{MEMORY, fails, json};

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
