//! What the command refuses: always by name, and without a socket that is left behind.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use pollux_tests::server::{Server, pollux_binary, pollux_command};
use tempfile::TempDir;

#[test]
fn a_bad_option_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let disk = ["--disk", "memory:size=1M"];
    let bad: &[(&str, &[&str])] = &[
        ("--num-queues", &["--num-queues", "0"]),
        ("--num-queues", &["--num-queues", "many"]),
        ("--queue-size", &["--queue-size", "100"]),
        ("--queue-size", &["--queue-size", "2048"]),
        ("whole number from 1 to 1024", &["--queue-size", "many"]),
        ("--block-size", &["--block-size", "1000"]),
        ("512 or 4096", &["--block-size", "small"]),
        ("--threads", &["--threads", "0"]),
        ("--cpus", &["--cpus", "one"]),
        ("--cpus", &["--cpus", "4000"]),
        ("--poll", &["--poll", "sometimes"]),
        ("--poll-max-us", &["--poll-max-us", "-1"]),
        ("--poll-cpu", &["--poll-cpu", "25"]),
        ("--poll-cpu", &["--poll", "always", "--poll-cpu", "25%"]),
        ("--signal", &["--signal", "never"]),
        ("--kicks", &["--kicks", "never"]),
        ("--socket-mode", &["--socket-mode", "0999"]),
        (
            "--serial",
            &["--serial", "more than the twenty bytes it may have"],
        ),
        ("--fd", &["--fd", "3"]),
        ("whole number from 0", &["--fd", "stdin"]),
        ("--blk-file", &["--blk-file", "/dev/null"]),
        ("[[disk]] section", &["--config", "/no/such.toml"]),
        (
            "iops-total is given twice",
            &["--limits", "iops-total=1,iops-total=2"],
        ),
        ("limit group `a`", &["--limit-group", "a"]),
        ("--limit-group", &["--limit-group", ""]),
        ("--log-level", &["--log-level", ""]),
        (
            "127.0.0.1:9464; names",
            &["--metrics-listen", "localhost:9464"],
        ),
        (
            "address of this machine",
            &["--metrics-listen", "192.0.2.1:9464"],
        ),
        ("--no-such-option", &["--no-such-option"]),
    ];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = ["--metrics-listen", &*address];
    refuses(
        &socket,
        &[&disk[..], &listen].concat(),
        "choose another port",
    );
    for (name, options) in bad {
        refuses(&socket, &[&disk, *options].concat(), name);
    }
}

#[test]
fn a_bad_disk_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    for (name, spec) in [
        ("floppy", "floppy:size=1M"),
        ("size", "memory"),
        ("12Q", "memory:size=12Q"),
        ("size", "null:size=0"),
        ("colour", "memory:size=1M,colour=red"),
        ("sometimes", "file:path=/dev/zero,cache=sometimes"),
        ("/no/such/file", "file:path=/no/such/file"),
        ("--disk memory:size=1", "memory:size=1"),
        ("RULE", "fault:on=memory:size=1M"),
    ] {
        refuses(&socket, &["--disk", spec], name);
    }
    refuses(&socket, &[], "--disk");
    let table = ["--table", "/no/such/table"];
    refuses(&socket, &table, "holds what `dmsetup table` prints");
    let image = folder.path().join("a.img");
    for content in [
        &b"0 8 linear a 0\0"[..],
        b"\xff",
        &b" ".repeat((4 << 20) + 1),
    ] {
        std::fs::write(&image, content).unwrap();
        let image = image.to_str().unwrap();
        let remedy = format!("to serve the file itself, give --blk-file {image}");
        refuses(&socket, &["--table", image], &remedy);
    }
    // Nobody writes to it.
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    refuses(
        &socket,
        &["--table", pipe.to_str().unwrap()],
        "a line of the table` is missing",
    );
    let nowhere = folder.path().join("no/disk.sock");
    let disk = ["--disk", "memory:size=1M"];
    refuses(&nowhere, &disk, "its folder does not exist");
    let below = folder.path().join("file");
    std::fs::write(&below, b"").unwrap();
    refuses(&below.join("disk.sock"), &disk, "its folder does not exist");
}

fn refuses(socket: &Path, args: &[&str], name: &str) {
    let Err(refusal) = Server::pollux(socket, args) else {
        panic!("{args:?} is served");
    };
    let message = refusal.to_string();
    assert!(
        message.contains(name),
        "{args:?} is refused without naming {name}: {message}"
    );
    assert!(!message.contains("status: 0"), "{args:?}: {message}");
    assert!(!message.contains("panicked"), "{args:?}: {message}");
    let there = socket.metadata().unwrap_err().kind();
    let none = matches!(there, ErrorKind::NotFound | ErrorKind::NotADirectory);
    assert!(none, "{args:?}: {there}");
}

#[test]
fn a_configuration_that_is_not_there_is_refused_with_a_remedy() {
    let mut command = Command::new(pollux_binary());
    let ended = command
        .args(["serve", "--config", "/no/such.toml"])
        .output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.contains("/no/such.toml"), "{told}");
    assert!(told.contains("`pollux serve --help` as keys"), "{told}");
}

#[test]
fn a_section_is_told_what_to_write_in_it() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("a.toml");
    for (text, words) in [
        (
            "disk = \"null:size=1G\"",
            "where to listen is missing; give socket-path = \"PATH\"",
        ),
        (
            "socket-path = \"/no/such.sock\"",
            "what to serve is missing; give blk-file = \"PATH\", disk = \"SPEC\"",
        ),
    ] {
        std::fs::write(&config, format!("[[disk]]\n{text}\n")).unwrap();
        let mut command = Command::new(pollux_binary());
        let ended = command.args(["serve", "--config"]).arg(&config).output();
        let told = String::from_utf8(ended.unwrap().stderr).unwrap();
        let words = format!("[[disk]] number 1: {words}");
        assert!(told.contains(&words), "{told}");
    }
}

#[test]
fn a_control_socket_is_none_of_a_disk() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let control = ["--control", socket.to_str().unwrap()];
    let words = "a disk listens there; choose another path for --control";
    refuses(
        &socket,
        &[&["--disk", "memory:size=1M"], &control[..]].concat(),
        words,
    );
    // Another process there is another matter.
    let _listener = UnixListener::bind(&socket).unwrap();
    let disk = ["--disk", "memory:size=1M", "--control"];
    let refusal = Server::pollux(
        &folder.path().join("other.sock"),
        &[&disk[..], &control[1..]].concat(),
    );
    let told = refusal.err().expect("that one listens").to_string();
    assert!(
        told.contains("a process listens on this socket already"),
        "{told}"
    );
}

#[test]
fn a_misspelt_level_in_the_variable_is_refused() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let mut command = pollux_command(&socket, &["--disk", "memory:size=1M"]);
    let ended = command.env("POLLUX_LOG", "debgu").output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(
        told.contains("POLLUX_LOG=debgu: write off, error"),
        "{told}"
    );
}
