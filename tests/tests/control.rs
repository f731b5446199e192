//! The control socket: what it tells, to whom, and that no client of it is noticed on a disk.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use blkio::ReqFlags;
use pollux_tests::client::{Client, Queue, Shape};
use pollux_tests::control::{Daemon, ask, closed, connect, say, status};
use pollux_tests::process::{Process, assert_idle, eventually};
use pollux_tests::server::{Ready, Server, pollux_binary};
use serde_json::Value;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

fn start(folder: &Path, name: &str, more: &[&str]) -> Daemon {
    Daemon::start(folder, name, "memory:size=1G", more).unwrap()
}

fn write_and_read(client: &Client, queue: &mut Queue) {
    let memory = client.memory(8192).unwrap();
    queue.write(0, &memory, 0..8192, 0, ReqFlags::empty());
    queue.finish().unwrap().unwrap();
    queue.read(0, &memory, 0..4096, 0);
    queue.finish().unwrap().unwrap();
}

/// `pollux disk …`.
fn disk_command(control: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(pollux_binary());
    command
        .arg("disk")
        .args(words)
        .arg("--control")
        .arg(control);
    command.output().unwrap()
}

fn printed(control: &Path, words: &[&str]) -> String {
    let output = disk_command(control, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(control: &Path, words: &[&str]) -> String {
    let output = disk_command(control, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_daemon_tells_of_its_disk_and_of_what_happens_on_it() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path(), "root", &["--serial", "s7", "--threads", "2"]);
    let disk = &daemon.get("/v1/disks")["disks"][0];
    assert_eq!(*disk, daemon.get("/v1/disks/root"));
    assert_eq!(
        (&disk["bytes"], &disk["serial"]),
        (&GIB.into(), &"s7".into())
    );
    assert_eq!(disk["frontend"], Value::Null);

    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    write_and_read(&client, &mut queues[0]);
    let disk = daemon.get("/v1/disks/root");
    assert_eq!(disk["frontend"]["pid"], std::process::id());
    let stats = daemon.get("/v1/disks/root/stats");
    assert_eq!(stats["total"]["bytes_written"], 8192);
    assert_eq!(stats["total"]["requests"]["read"]["ok"], 1);
    assert_eq!(stats["queues"].as_array().unwrap().len(), 1, "{stats}");
    let workers = daemon.get("/v1/workers");
    let workers = workers["workers"].as_array().unwrap();
    let used = |worker: &Value| worker["cpu_ns"].as_u64().unwrap();
    assert_eq!(workers.len(), 2);
    assert!(workers.iter().map(used).sum::<u64>() > 0, "{workers:?}");
    let health = daemon.get("/v1/health");
    assert_eq!(
        (&health["status"], &health["connected"]),
        (&"serving".into(), &1.into())
    );

    drop((queues, client));
    eventually(
        || daemon.get("/v1/disks/root")["frontend"].is_null(),
        || "a frontend that has gone is told of".into(),
    );
    daemon.ends_well();
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "sockets and their locks go");
}

#[test]
fn only_its_owner_may_connect_and_only_one_daemon_has_it() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path(), "root", &[]);
    let mode = fs::metadata(&daemon.control).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut second = Command::new(pollux_binary());
    second.args(["serve", "--disk", "null:size=1G", "--socket-path"]);
    second.arg(folder.path().join("other.sock"));
    second.arg("--control").arg(&daemon.control);
    let output = second.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let words = format!(
        "--control {}: a process listens on this socket already",
        daemon.control.display()
    );
    assert!(said.contains(&words), "{said}");
}

#[test]
fn a_configuration_names_the_socket_and_the_disks() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = |second: &str| {
        format!(
            "control = {:?}\n[[disk]]\nsocket-path = {:?}\ndisk = \"null:size=1G\"\n\
             [[disk]]\nname = {second:?}\nsocket-path = {:?}\ndisk = \"null:size=2G\"\n",
            at("a.control"),
            at("a.sock"),
            at("b.sock")
        )
    };
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--config"]).arg(at("pollux.toml"));
    for (name, words) in [
        ("a", "pollux.toml: [[disk]]: two disks are called `a`"),
        ("a/b", "--name \"a/b\""),
    ] {
        fs::write(at("pollux.toml"), text(name)).unwrap();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words), "{said}");
    }
    fs::write(at("pollux.toml"), text("data")).unwrap();
    let _server = Server::start(&mut command, &at("b.sock"), Ready::LogLine).unwrap();
    let (_, disk) = ask(&at("a.control"), "GET", "/v1/disks/data").unwrap();
    assert_eq!(disk["bytes"], 2 * GIB);
}

#[test]
fn the_command_asks_all_daemons_of_a_folder() {
    let folder = TempDir::new().unwrap();
    let said = refused(folder.path(), &["list"]);
    assert!(said.contains("no daemon has a control socket"), "{said}");
    let one = start(folder.path(), "one", &[]);
    let two = start(folder.path(), "two", &["--read-only"]);
    let (client, mut queues) = Client::connect(&one.disk, Shape::blocking(1, 64)).unwrap();
    write_and_read(&client, &mut queues[0]);

    let table = printed(folder.path(), &["list"]);
    let lines: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][..3], ["DISK", "SIZE", "ACCESS"]);
    assert_eq!(lines[1][..4], ["one", "1", "GiB", "rw"]);
    assert_eq!(lines[2][..4], ["two", "1", "GiB", "ro"]);
    let list: Value =
        serde_json::from_str(&printed(folder.path(), &["list", "--output", "json"])).unwrap();
    assert_eq!(list[1]["name"], "two");
    assert_eq!(list[1]["control"], two.control.to_str().unwrap());
    let stats: Value = serde_json::from_str(&printed(
        folder.path(),
        &["stats", "one", "--output", "json"],
    ))
    .unwrap();
    assert_eq!(stats[0]["total"]["bytes_read"], 4096);
    let table = printed(&one.control, &["stats"]);
    assert!(table.lines().nth(1).unwrap().starts_with("one"), "{table}");

    let said = refused(folder.path(), &["stats", "three"]);
    assert!(said.contains("`pollux disk list` shows"), "{said}");
    // One that was killed leaves its socket, and is none.
    drop(two);
    assert!(folder.path().join("two.control").exists());
    assert_eq!(printed(folder.path(), &["list"]).lines().count(), 2);
    let said = refused(&folder.path().join("two.control"), &["list"]);
    assert!(said.contains("no server listens there"), "{said}");
}

#[test]
fn an_idle_control_socket_wakes_nobody() {
    let folder = TempDir::new().unwrap();
    let watched = ["--latencies", "--metrics-listen", "127.0.0.1:0"];
    let daemon = start(folder.path(), "root", &watched);
    daemon.get("/v1/disks");
    let mut top = Command::new(pollux_binary());
    top.args(["top", "--once", "--interval", "0.1", "--control"]);
    assert!(top.arg(folder.path()).output().unwrap().status.success());
    // A silent client wakes it once: when its time is over.
    closed(&daemon.control).unwrap();
    assert_idle(Process::new(daemon.server.pid()), Duration::from_secs(4));
}

#[test]
fn bad_clients_keep_nobody_away_and_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path(), "root", &[]);
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    daemon.get("/v1/disks");
    // The connection of that request may still be open.
    let before = Process::new(daemon.server.pid()).holdings().unwrap();

    // More than are served at once, and each says half a request.
    let silent: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect(&daemon.control).unwrap();
            stream.write_all(b"GET /v1/disks HT").unwrap();
            stream
        })
        .collect();
    daemon.get("/v1/health");
    let held = Process::new(daemon.server.pid()).holdings().unwrap();
    assert!(held.fds <= before.fds + 33, "{held:?} after {before:?}");
    assert_eq!(held.threads, before.threads);
    write_and_read(&client, &mut queues[0]);
    drop(silent);

    let long = "x".repeat(1 << 20);
    let many = "a: b\r\n".repeat(1000);
    let body = format!(
        "POST /v1/disks HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{long}",
        1 << 20
    );
    for (request, wanted) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), &[414, 431][..]),
        (format!("GET / HTTP/1.1\r\nlong: {long}\r\n\r\n"), &[431]),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), &[400, 431]),
        ("nonsense\r\n\r\n".to_owned(), &[400]),
        ("\x16\x03\x01\x02\x00\x01\0\0".to_owned(), &[400]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), &[0, 400]),
        (body, &[413]),
        (
            "POST /v1/disks HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            &[400, 405],
        ),
    ] {
        let answer = say(&daemon.control, request.as_bytes()).unwrap();
        let shown: String = request.chars().take(40).collect();
        assert!(wanted.contains(&status(&answer)), "{shown:?}: {answer:?}");
    }
    for _ in 0..1000 {
        drop(connect(&daemon.control).unwrap());
    }
    let grown = Process::new(daemon.server.pid())
        .anonymous_memory()
        .unwrap();
    for _ in 0..200 {
        say(&daemon.control, format!("GET /{long}").as_bytes()).unwrap();
    }
    let grown = Process::new(daemon.server.pid())
        .anonymous_memory()
        .unwrap()
        .saturating_sub(grown);
    assert!(grown < 4 << 20, "{grown} bytes more");
    write_and_read(&client, &mut queues[0]);
    let left = || {
        let now = Process::new(daemon.server.pid()).holdings().unwrap();
        now.fds <= before.fds && now.threads == before.threads
    };
    eventually(left, || {
        format!(
            "{:?} after {before:?}",
            Process::new(daemon.server.pid()).holdings()
        )
    });
    daemon.ends_well();
}
