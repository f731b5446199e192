//! The command: how it starts, and how it ends.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use pollux_tests::backend::{Backend, Plan, Silence, code};
use pollux_tests::busy::while_busy;
use pollux_tests::client::{Client, Memory, Queue, Shape};
use pollux_tests::frontend::{Driver, Frontend, TWO_QUEUES};
use pollux_tests::process::eventually;
use pollux_tests::server::{Ready, Server, pollux_binary, pollux_command};
use pollux_tests::subject::{Disk, Program, Subject};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const SIZE: u64 = 64 << 20;

/// Reads without end on a queue that is kept full.
struct EndlessReads {
    queue: Queue,
    memory: Memory,
    idle: Vec<usize>,
}

impl EndlessReads {
    fn start(socket: &Path) -> Self {
        let (client, mut queues) = Client::connect(socket, Shape::polling(1, 128)).unwrap();
        let memory = client.memory(32 << 16).unwrap();
        let (queue, idle) = (queues.remove(0), (0..32).collect());
        Self {
            queue,
            memory,
            idle,
        }
    }

    /// Replaces what has come back, without waiting: the server may end at any moment.
    fn go_on(&mut self) {
        for token in self.idle.drain(..) {
            let range = token << 16..(token + 1) << 16;
            self.queue
                .read(range.start as u64, &self.memory, range, token);
        }
        self.queue.wait(0).unwrap();
        while let Some(done) = self.queue.take() {
            done.result.unwrap();
            self.idle.push(done.token);
        }
    }
}

fn ends_cleanly_by(signal: Signal) {
    let subject = Subject::start(Disk::memory(SIZE, 1), &[]).unwrap();
    let socket = subject.socket().to_owned();
    let mut reads = EndlessReads::start(&socket);
    eventually(
        || {
            reads.go_on();
            !reads.idle.is_empty()
        },
        || "no read has come back".into(),
    );
    let end = || subject.end_by(signal).unwrap();
    let (_, (status, log)) = while_busy(|| reads.go_on(), end);
    assert_eq!(status.code(), Some(0), "{status}, {log}");
    assert!(!socket.exists(), "the socket is left behind");
    reads.memory.abandon();
}

#[test]
fn sigterm_in_the_middle_of_io_is_a_clean_end() {
    ends_cleanly_by(Signal::TERM);
}

/// It waits for the server of its disk, for as long as that may take.
#[test]
fn two_signals_end_a_daemon_that_is_still_opening_its_disks() {
    let backend = Backend::start(Plan::default()).unwrap();
    backend.fall_silent(code::GET_FEATURES, Silence::Mute);
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let disk = format!("vhost-user:path={}", backend.socket().display());
    let mut command = pollux_command(&socket, &["--disk", &disk]);
    let server = Server::begin(&mut command, &socket, Ready::LogLine).unwrap();
    backend.wait_until(|seen| seen.silences == 1);
    server.signal(Signal::TERM).unwrap();
    let (status, log) = server.end_by(Signal::INT).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(
        !log.contains("cannot open"),
        "it has waited until the server's time was up: {log}"
    );
}

/// Each of the two would wait for the other.
#[test]
fn a_disk_made_of_one_of_the_same_daemon_is_refused() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (one, other, config) = (at("one.sock"), at("other.sock"), at("pollux.toml"));
    let disk = |socket: &str, disk: &str| {
        format!("[[disk]]\nsocket-path = \"{socket}\"\ndisk = \"{disk}\"\n")
    };
    let text = disk(&one, "memory:size=1M") + &disk(&other, &format!("vhost-user:path={one}"));
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(pollux_binary());
    let ended = command.args(["serve", "--config", &config]).output();
    let ended = ended.unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(
        told.contains("one.sock is a socket of this very process"),
        "{told}"
    );
}

#[test]
fn sigint_in_the_middle_of_io_is_a_clean_end() {
    ends_cleanly_by(Signal::INT);
}

/// The terminal closes.
#[test]
fn sighup_in_the_middle_of_io_is_a_clean_end() {
    if Program::chosen() == Program::Pollux {
        ends_cleanly_by(Signal::HUP);
    } else {
        println!("SKIP it is Pollux that ends cleanly");
    }
}

/// A terminal that closes sends more than one SIGHUP, as its shell may, and systemd one beside SIGTERM.
#[test]
fn sighup_does_not_mean_hurry() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let disk = "fault:hang=request,on=memory:size=1M";
    let server = Server::pollux(&socket, &["--disk", disk]).unwrap();
    let (client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
    let memory = client.memory(512).unwrap();
    queues[0].read(0, &memory, 0..512, 0);
    queues[0].wait(0).unwrap();
    // One that follows at once is the same: `timeout` sends its signal to a process and to its group.
    for ending in [Signal::HUP, Signal::TERM, Signal::TERM, Signal::HUP] {
        server.signal(ending).unwrap();
    }
    // Still there, with a request that never ends.
    server.signal(Signal::USR1).unwrap();
    assert!(server.says("sleeps"), "{}", server.log());
    let (status, log) = server.end_by(Signal::INT).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("told to end once more"), "{log}");
    memory.abandon();
}

/// As `nohup` starts it.
#[test]
fn a_daemon_that_is_to_outlive_its_terminal_does() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let inner = pollux_command(&socket, &["--disk", "memory:size=1M"]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
    server.signal(Signal::HUP).unwrap();
    Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
    assert_eq!(log.matches("told to end").count(), 1, "{log}");
}

/// What read its log has gone: a pager, a terminal.
#[test]
fn a_log_that_nobody_reads_any_more_ends_nothing() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let mut command = pollux_command(&socket, &["--disk", "memory:size=1M"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("serving disk=")));
    drop(lines);
    for _ in 0..2 {
        let (_client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
        queues[0].flush(0);
        queues[0].finish().unwrap().unwrap();
    }
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::USR1).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!socket.exists(), "the socket is left behind");
}

/// A frontend whose daemon is told to end sees the end of its connection only after the last of its requests has
/// ended: else it would hand those to the next daemon while this one still works on them.
#[test]
fn requests_end_before_the_connection_does() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    fcntl_setfd(&theirs, FdFlags::empty()).unwrap(); // no close-on-exec
    let mut command = Command::new(pollux_binary());
    let disk = "fault:delay=500ms,op=write,on=memory:size=1M";
    let fd = theirs.as_raw_fd().to_string();
    command.args(["serve", "--num-queues", "2", "--disk", disk, "--fd", &fd]);
    let server = Server::start(&mut command, Path::new(""), Ready::LogLine).unwrap();
    drop(theirs);
    let mut end = ours.try_clone().unwrap();
    let mut driver = Driver::over(Frontend::over(ours).unwrap(), TWO_QUEUES).unwrap();
    let queue = &mut driver.queues[0];
    queue.write(0, 0, 7);
    queue.read(1, 8);
    queue.publish_and_kick();
    // The read is not held up: so the write before it was taken.
    eventually(|| queue.used() == 1, || "the read has not ended".into());
    let ending = std::thread::spawn(|| server.terminate().unwrap());
    assert_eq!(end.read(&mut [0]).unwrap(), 0, "nothing but the end comes");
    assert_eq!(queue.used(), 2, "the write goes on behind our back");
    let (status, log) = ending.join().unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A memory disk on `socket`, by Pollux alone: these are promises about its command line.
fn serve(socket: &Path) -> std::io::Result<Server> {
    Server::pollux(socket, &["--disk", "memory:size=1M"])
}

#[test]
fn sigusr1_prints_the_counters() {
    let folder = TempDir::new().unwrap();
    let server = serve(&folder.path().join("disk.sock")).unwrap();
    let (_client, mut queues) = Client::connect(server.socket(), Shape::blocking(1, 64)).unwrap();
    for _ in 0..7 {
        queues[0].flush(0);
        queues[0].finish().unwrap().unwrap();
    }
    server.signal(Signal::USR1).unwrap();
    assert!(server.says("sleeps"), "no counters in {}", server.log());
    let log = server.log();
    let flushes = log
        .lines()
        .find(|line| line.trim_start().starts_with("flush"));
    let count = flushes.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(count, Some("7"), "{log}");
}

#[test]
fn sigusr1_prints_counters_for_programs_with_a_log_in_json() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let options = ["--disk", "memory:size=1M", "--log-format", "json"];
    let mut command = pollux_command(&socket, &options);
    let server = Server::start(&mut command, &socket, Ready::JsonLine).unwrap();
    let (_client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
    for _ in 0..7 {
        queues[0].flush(0);
        queues[0].finish().unwrap().unwrap();
    }
    server.signal(Signal::USR1).unwrap();
    assert!(
        server.says(r#""message":"counters""#),
        "no counters in {}",
        server.log()
    );
    let log = server.log();
    let line = log.lines().find(|line| line.contains("counters")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["fields"]["queue"], 0, "{line}");
    let counters = line["fields"]["counters"].as_str().expect("JSON in a text");
    let counters: serde_json::Value = serde_json::from_str(counters).unwrap();
    assert_eq!(counters["requests"]["flush"]["ok"], 7, "{counters}");
}

#[test]
fn the_option_decides_how_much_is_logged_before_the_variable_does() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let disk = ["--disk", "memory:size=1M"];
    for (option, variable, words, there) in [
        ("warn", "debug", "serving disk=", false),
        ("info", "error", "serving disk=", true),
    ] {
        let mut command = pollux_command(&socket, &[&disk[..], &["--log-level", option]].concat());
        command.env("POLLUX_LOG", variable);
        let server = Server::start(&mut command, &socket, Ready::Listening).unwrap();
        let (_, log) = server.terminate().unwrap();
        assert_eq!(log.contains(words), there, "{option}: {log}");
    }
}

#[test]
fn a_stale_socket_is_replaced() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists(), "nobody listens, but the file is there");
    let server = serve(&socket).unwrap();
    Client::connect(server.socket(), Shape::blocking(1, 64)).unwrap();
}

#[test]
fn a_live_socket_is_refused_by_name_and_keeps_serving() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let _first = serve(&socket).unwrap();
    let refusal = serve(&socket)
        .err()
        .expect("the socket is taken")
        .to_string();
    assert!(refusal.contains(socket.to_str().unwrap()), "{refusal}");
    assert!(!refusal.contains("status: 0"), "{refusal}");
    Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
}

#[test]
fn a_file_in_place_of_the_socket_is_refused_and_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.sock");
    std::fs::write(&path, "precious").unwrap();
    let refusal = serve(&path).err().expect("this is no socket").to_string();
    assert!(refusal.contains(path.to_str().unwrap()), "{refusal}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_frontend_that_waits_for_another_is_told_of_once() {
    let folder = TempDir::new().unwrap();
    let server = serve(&folder.path().join("disk.sock")).unwrap();
    let (_client, mut queues) = Client::connect(server.socket(), Shape::blocking(1, 64)).unwrap();
    let words = "another frontend waits";
    assert!(!server.log().contains(words), "{}", server.log());
    let _others = [(); 2].map(|()| UnixStream::connect(server.socket()).unwrap());
    assert!(server.says(words), "{}", server.log());
    queues[0].flush(0);
    queues[0].finish().unwrap().unwrap();
    let (_, log) = server.terminate().unwrap();
    assert_eq!(log.matches(words).count(), 1, "{log}");
}

#[test]
fn the_capabilities_are_those_of_a_block_device() {
    let output = Command::new(pollux_binary())
        .args(["serve", "--print-capabilities"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let text: String = text.split_whitespace().collect();
    assert_eq!(
        text,
        r#"{"type":"block","features":["read-only","blk-file"]}"#
    );
}

#[test]
fn output_that_is_no_longer_read_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(pollux_binary())
        .args(["generate", "completions", "bash"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

/// The device that has no room: what is printed there is not.
fn to_nobody() -> Stdio {
    File::create("/dev/full").unwrap().into()
}

#[test]
fn what_cannot_be_printed_is_an_error_and_hints_alone_are_not() {
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--print-capabilities"]);
    let output = command.stdout(to_nobody()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--show-attach", "--disk", "memory:size=1M"]);
    command.arg("--socket-path").arg(&socket);
    command.stdout(to_nobody()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for told in ["what --show-attach tells cannot be printed", "serving"] {
        assert!(lines.any(|line| line.unwrap().contains(told)), "{told}");
    }
    Client::connect(&socket, Shape::polling(1, 4)).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
