//! Servers that already run: Pollux, qemu-storage-daemon, and `make run`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use pollux_tests::client::{Client, Shape};
use pollux_tests::peers;
use pollux_tests::server::{Server, pollux_binary};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{count, fails, json, number, started};

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

/// Its socket is in use for a while: that is told, and waited for.
#[test]
fn a_server_that_serves_another_client_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=64M"]).unwrap();
    let other = Client::connect(server.socket(), Shape::blocking(1, 64)).unwrap();
    let mut bench = Command::new(pollux_binary());
    bench.args(["bench", "--runtime", "100ms", "--socket"]);
    let mut bench = bench
        .arg(server.socket())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines();
    let told = lines.next().unwrap().unwrap();
    assert!(told.contains("waiting for the server at"), "{told}");
    drop(other);
    assert!(bench.wait().unwrap().success());
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
        let reading = ["--socket", socket.to_str().unwrap(), "--runtime", "10m"];
        let args = [&reading[..], &["--completion", completion]].concat();
        let child = started(&args, "job-0");
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
