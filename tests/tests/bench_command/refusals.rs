//! What it refuses, what it warns of, and what ends a run.

use pollux_tests::server::Server;
use tempfile::TempDir;

use super::{bench, count, fails, json};

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
    let cases: [(&[&str], &str); 16] = [
        (&["--socket", "/nowhere/disk.sock"], "/nowhere/disk.sock"),
        (&["--disk", "mem:size=1M"], "--disk"),
        (&["--disk", "memory:size=1M", "--size", "2M"], "--size"),
        (&["--disk", "memory:size=1M", "--bs", "1000"], "--bs"),
        (&["--disk", "memory:size=1M", "--bs", "2m"], "--bs"),
        (&["--disk", "memory:size=1M", "--iodepth", "0"], "--iodepth"),
        (&["--disk", "memory:size=1M", "--cpus", "x"], "--cpus"),
        (
            &["--disk", "memory:size=1M", "--output", "/nowhere/report"],
            "--output /nowhere/report cannot be written; make its folder first",
        ),
        (&["--disk", "memory:size=1M", "--direct=1"], "cache=none"),
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

#[test]
fn a_server_with_small_rings_is_driven_through_small_rings() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let of_server = ["--disk", "memory:size=1M", "--queue-size", "128"];
    let server = Server::pollux(&socket, &of_server).unwrap();
    let socket = server.socket().to_str().unwrap();
    let said = fails(&["--socket", socket]);
    assert!(
        said.contains("give --queue-size as the server was given it"),
        "{said}"
    );
    let args = ["--socket", socket, "--queue-size", "128"];
    let report = json(&[&args[..], &["--iodepth", "128", "--runtime", "200ms"]].concat());
    assert!(count(&report["jobs"][0]["read"]["total_ios"]) > 0);
    let deep = bench(&[&args[..], &["--iodepth", "1024", "--runtime", "200ms"]].concat());
    let said = String::from_utf8_lossy(&deep.stderr);
    assert!(deep.status.success(), "{said}");
    assert!(
        said.contains("than the ring has entries") && said.contains("wanted=1024 entries=128"),
        "{said}"
    );
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
