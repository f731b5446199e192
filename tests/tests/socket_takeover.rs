//! What a daemon must not take from others: the path of a socket, a descriptor that nobody passed, a connection.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::mem;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::channel;
use std::time::Duration;

use pollux_tests::activation::Sockets;
use pollux_tests::client::{Client, Shape};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::{Ready, Server, pollux_binary, pollux_command};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, listen, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const DISK: [&str; 2] = ["--disk", "memory:size=1M"];

fn serve(socket: &Path) -> std::io::Result<Server> {
    Server::pollux(socket, &DISK)
}

fn is_used(socket: &Path) {
    Client::connect(socket, Shape::blocking(1, 64)).unwrap();
}

fn is_refused(started: std::io::Result<Server>, words: &str) {
    let refusal = started.err().expect("it is not refused").to_string();
    assert!(refusal.contains(words), "{refusal}");
    assert!(!refusal.contains("status: 0"), "{refusal}");
    assert!(!refusal.contains("panicked"), "{refusal}");
}

/// Tells `server` to end, and waits for that, but not for ever.
fn ends(server: Server) -> (ExitStatus, String) {
    let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(server.terminate().unwrap()));
    told.recv_timeout(Duration::from_secs(60))
        .unwrap_or_else(|_| {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("SIGTERM does not end it");
        })
}

fn ends_well(server: Server) {
    let (status, log) = ends(server);
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
}

fn is_empty(folder: &TempDir) -> bool {
    fs::read_dir(folder.path()).unwrap().next().is_none()
}

#[test]
fn a_daemon_removes_no_socket_but_its_own() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("a.sock");
    let first = serve(&socket).unwrap();
    fs::remove_file(&socket).unwrap();
    let second = serve(&socket).unwrap();
    ends_well(first);
    is_used(&socket);
    ends_well(second);
    assert!(is_empty(&folder), "a socket or its lock stays");
}

/// A daemon is killed and the next one is started at once, several times: at the same socket, or at `others`.
fn is_taken_over(options: &[&str], folder: &Path, others: bool) {
    let sockets =
        ["a.sock", if others { "b.sock" } else { "a.sock" }].map(|name| folder.join(name));
    let mut server = Server::pollux(&sockets[0], options).unwrap();
    for turn in 1..6 {
        is_used(server.socket());
        // It still has all of it, until the kernel has taken its memory away.
        server.signal(Signal::KILL).unwrap();
        let next = Server::pollux(&sockets[turn % 2], options).unwrap();
        drop(mem::replace(&mut server, next));
    }
    is_used(server.socket());
    ends_well(server);
}

#[test]
fn the_next_daemon_takes_over_from_one_that_was_killed_a_moment_ago() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let image = format!("file:path={}", at("a.img"));
    fs::File::create(at("a.img"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    fs::create_dir(at("disks")).unwrap();
    let control = ["--control", &at("control.sock")];
    let state = ["--disk-folder", &at("disks"), "--state", &at("state.json")];
    // Free again after this line.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let metrics = ["--metrics-listen", &port.unwrap().to_string()];
    is_taken_over(&DISK, folder.path(), false);
    is_taken_over(&["--disk", &image], folder.path(), true);
    is_taken_over(&[DISK, control].concat(), folder.path(), true);
    is_taken_over(&[&DISK[..], &control, &state].concat(), folder.path(), true);
    is_taken_over(&[DISK, metrics].concat(), folder.path(), true);
}

#[test]
fn what_lies_where_its_socket_was_stays() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("a.sock");
    let server = serve(&socket).unwrap();
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "precious").unwrap();
    ends_well(server);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
}

/// A daemon is stopped when it has found a stale socket, or when its own is bound and does not listen yet. Another one
/// that starts meanwhile must not go on as if it were alone.
#[test]
fn daemons_that_start_at_once_do_not_take_each_others_socket() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    for call in ["connect", "bind"] {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("a.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let trace = folder.path().join("trace");
        let inner = pollux_command(&socket, &DISK);
        let mut command = Command::new(&strace);
        command.args(["-D", "-f", "-o"]).arg(&trace).arg("-e");
        command.arg(format!("inject={call}:signal=STOP:when=1"));
        command.arg(inner.get_program()).args(inner.get_args());
        let first = Server::begin(&mut command, &socket, Ready::LogLine).unwrap();
        let is_stopped =
            || fs::read_to_string(&trace).is_ok_and(|told| told.contains("stopped by SIGSTOP"));
        eventually(is_stopped, || format!("it has not come to {call}"));
        is_refused(serve(&socket), "another process is starting");
        first.signal(Signal::CONT).unwrap();
        let first = first.until(Ready::LogLine).unwrap();
        is_used(&socket);
        ends_well(first);
        fs::remove_file(&trace).unwrap();
        assert!(is_empty(&folder), "{call}");
    }
}

#[test]
fn a_full_backlog_is_a_live_socket() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("a.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    listen(&listener, 0).unwrap();
    let address = SocketAddrUnix::new(&socket).unwrap();
    let mut waiting = vec![];
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let one = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        match connect(&one, &address) {
            Ok(()) => waiting.push(one),
            Err(full) => {
                assert_eq!(full, Errno::AGAIN);
                break;
            }
        }
    }
    is_refused(serve(&socket), "a process listens on this socket already");
}

/// Both are woken by a frontend, and each is held up on its way to `accept`: the first one for less, so it takes the
/// connection. The other one must not wait there for the next.
#[test]
fn a_listener_that_two_daemons_share_holds_neither() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.sock");
    let mut sockets = Sockets::default();
    sockets.listen("shared", &path).unwrap();
    let pollux = pollux_binary();
    let start = |us: u32| {
        let delay = format!("inject=accept4:delay_enter={us}");
        let traced = ["-D", "-f", "-o", "/dev/null", "-e", &delay];
        let serve = [pollux.to_str().unwrap(), "serve", DISK[0], DISK[1]];
        let mut command = sockets.pass_to(&strace, &[&traced[..], &serve].concat());
        Server::start(&mut command, &path, Ready::LogLine).unwrap()
    };
    let (first, second) = (start(200_000), start(1_000_000));
    let connection = Client::connect(&path, Shape::blocking(1, 64)).unwrap();
    ends_well(second);
    drop(connection);
    is_used(&path);
    ends_well(first);
}

/// `pollux ARGS…`, with these descriptors closed.
fn without(closed: std::ops::Range<i32>, args: &[&str]) -> Command {
    use std::fmt::Write as _;
    let mut line = String::new();
    for fd in closed {
        write!(line, "exec {fd}<&-; ").unwrap();
    }
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{line}exec \"$@\""))
        .arg("sh");
    command.arg(pollux_binary()).args(args);
    command
}

#[test]
fn a_descriptor_that_nobody_passed_is_refused() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("pollux.toml");
    for fd in 3..10 {
        let number = fd.to_string();
        let line = ["serve", "--disk", "memory:size=1M", "--fd", &number];
        let text = format!("[[disk]]\nfd = {fd}\ndisk = \"memory:size=1M\"\n");
        fs::write(&config, text).unwrap();
        let file = ["serve", "--config", config.to_str().unwrap()];
        for args in [&line[..], &file] {
            let mut command = without(3..10, args);
            let started = Server::start(&mut command, Path::new(""), Ready::LogLine);
            is_refused(started, &format!("--fd {fd}: this descriptor is not open"));
        }
    }
}

fn inheritable(fd: impl AsFd) -> String {
    fcntl_setfd(&fd, FdFlags::empty()).unwrap(); // no close-on-exec
    fd.as_fd().as_raw_fd().to_string()
}

#[test]
fn a_descriptor_on_which_nothing_can_be_served_is_refused() {
    let (datagram, _other) = UnixDatagram::pair().unwrap();
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let fresh = socket_with(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
    for (fd, words) in [
        (inheritable(&datagram), "SOCK_STREAM"),
        (inheritable(&fresh), "neither listens nor is connected"),
    ] {
        let mut command = Command::new(pollux_binary());
        command.arg("serve").args(DISK).args(["--fd", &fd]);
        let started = Server::start(&mut command, Path::new(""), Ready::LogLine);
        is_refused(started, words);
    }
}

#[test]
fn one_descriptor_for_two_disks_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut sockets = Sockets::default();
    sockets
        .listen("one", &folder.path().join("a.sock"))
        .unwrap();
    let config = folder.path().join("pollux.toml");
    let disk = |from: &str| format!("[[disk]]\n{from}\ndisk = \"memory:size=1M\"\n");
    for other in ["fd = 3", "fd-name = \"one\""] {
        fs::write(&config, disk("fd = 3") + &disk(other)).unwrap();
        let args = ["serve", "--config", config.to_str().unwrap()];
        let mut command = sockets.pass_to(&pollux_binary(), &args);
        let started = Server::start(&mut command, Path::new(""), Ready::LogLine);
        is_refused(started, "--fd 3: two disks");
    }
}

#[test]
fn a_socket_that_the_service_manager_passes_can_be_named_by_its_number() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.sock");
    let mut sockets = Sockets::default();
    sockets.listen("one", &path).unwrap();
    let args = ["serve", "--fd", "3", DISK[0], DISK[1]];
    let mut command = sockets.pass_to(&pollux_binary(), &args);
    let server = Server::start(&mut command, &path, Ready::LogLine).unwrap();
    is_used(&path);
    ends_well(server);
}
