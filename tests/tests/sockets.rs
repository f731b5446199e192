//! Sockets: whose they are, who may connect, and those that the service manager passes.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use pollux_tests::activation::Sockets;
use pollux_tests::client::{Client, Shape};
use pollux_tests::peers;
use pollux_tests::server::{Ready, Server, pollux_binary, pollux_command};
use tempfile::TempDir;

const DISK: [&str; 2] = ["--disk", "memory:size=1M"];

fn is_used(socket: &Path) {
    Client::connect(socket, Shape::blocking(1, 64)).unwrap();
}

fn ends_well(server: Server) {
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
}

/// Whatever the umask, a socket has the rights that were asked for when it can be reached, and not before.
#[test]
fn a_socket_has_its_rights_before_anybody_can_reach_it() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    for umask in ["000", "077", "777"] {
        let folder = TempDir::new().unwrap();
        let (socket, trace) = (folder.path().join("a.sock"), folder.path().join("trace"));
        let rights = ["--socket-mode", "0640", "--socket-owner", "nobody:daemon"];
        let inner = pollux_command(&socket, &[&DISK[..], &rights].concat());
        let mut command = Command::new("sh");
        let line = format!("umask {umask}; exec \"$@\"");
        command
            .args(["-c", &line, "sh"])
            .arg(&strace)
            .args(["-D", "-f"]);
        command.args(["-e", "trace=bind,listen,fchmodat,fchmod,fchownat", "-o"]);
        command
            .arg(&trace)
            .arg(inner.get_program())
            .args(inner.get_args());
        let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
        let is = fs::metadata(&socket).unwrap();
        assert_eq!(is.mode() & 0o7777, 0o640, "umask {umask}");
        assert_eq!(
            (is.uid(), is.gid()),
            (65534, 1),
            "nobody and daemon, as on every Debian"
        );
        is_used(&socket);
        ends_well(server);
        let trace = fs::read_to_string(&trace).unwrap();
        let at = |call: &str| {
            trace
                .find(call)
                .unwrap_or_else(|| panic!("no {call} in {trace}"))
        };
        let order = [" fchmod(", " bind(", " fchownat(", " fchmodat(", " listen("].map(at);
        assert!(order.is_sorted(), "{trace}");
    }
}

#[test]
fn who_cannot_own_a_socket_is_named() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("a.sock");
    for (option, value, named) in [
        ("--socket-owner", "no-such-user", "no user `no-such-user`"),
        (
            "--socket-owner",
            "root:no-such-group",
            "no group `no-such-group`",
        ),
        (
            "--socket-group",
            "no-such-group",
            "no group `no-such-group`",
        ),
    ] {
        let refusal = Server::pollux(&socket, &[&DISK[..], &[option, value]].concat());
        let refusal = refusal.err().expect("nobody can own it").to_string();
        assert!(
            refusal.contains(named) && refusal.contains(option),
            "{refusal}"
        );
        assert!(!socket.exists());
    }
}

/// Whoever is not root cannot give sockets away, and leaves none behind.
#[test]
fn a_socket_that_cannot_be_given_away_is_not_there() {
    let Some(setpriv) = peers::installed("setpriv") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let program = folder.path().join("pollux");
    fs::copy(pollux_binary(), &program).unwrap();
    let socket = folder.path().join("a.sock");
    let mut command = Command::new(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command
        .arg(&program)
        .args(["serve", "--socket-path"])
        .arg(&socket);
    command.args(DISK).args(["--socket-owner", "root"]);
    let refusal = Server::start(&mut command, &socket, Ready::LogLine).err();
    let refusal = refusal.expect("it is not ours to give").to_string();
    assert!(
        refusal.contains("user 0") && refusal.contains("a.sock"),
        "{refusal}"
    );
    assert!(!socket.exists());
}

#[test]
fn the_only_socket_that_is_passed_needs_no_option_and_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("passed.sock");
    let mut sockets = Sockets::default();
    sockets.listen("pollux.socket", &path).unwrap();
    for _ in 0..2 {
        let args = [&["serve"], &DISK[..]].concat();
        let mut command = sockets.pass_to(&pollux_binary(), &args);
        let server = Server::start(&mut command, &path, Ready::LogLine).unwrap();
        assert!(server.says("disk=\"pollux.socket\""), "{}", server.log());
        is_used(&path);
        ends_well(server);
        assert!(path.exists(), "it is not the daemon's to remove");
    }
}

#[test]
fn sockets_that_are_passed_go_to_the_disks_that_name_them() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(format!("{name}.sock"));
    let mut sockets = Sockets::default();
    let mut text = String::new();
    // In the file they come the other way round.
    for (name, mib) in [("small", 1), ("large", 2)] {
        sockets.listen(name, &path(name)).unwrap();
        text = format!("[[disk]]\nfd-name = {name:?}\ndisk = \"memory:size={mib}M\"\n{text}");
    }
    sockets.listen("idle", &path("idle")).unwrap();
    let config = folder.path().join("pollux.toml");
    fs::write(&config, text).unwrap();
    let args = ["serve", "--config", config.to_str().unwrap()];
    let mut command = sockets.pass_to(&pollux_binary(), &args);
    let server = Server::start(&mut command, &path("small"), Ready::LogLine).unwrap();
    for (name, mib) in [("small", 1), ("large", 2)] {
        let (client, _) = Client::connect(&path(name), Shape::blocking(1, 64)).unwrap();
        assert_eq!(client.capacity().unwrap(), mib << 20, "{name}");
    }
    assert!(
        server.says("passed that no disk is served on name=\"idle\""),
        "{}",
        server.log()
    );
    ends_well(server);
}

#[test]
fn what_was_not_passed_is_missed_by_name() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.sock");
    let mut sockets = Sockets::default();
    sockets.listen("one", &path).unwrap();
    sockets
        .listen("two", &folder.path().join("b.sock"))
        .unwrap();
    let refuses = |command: &mut Command, words: &str| {
        let refusal = Server::start(command, &path, Ready::LogLine).err();
        let refusal = refusal.expect("there is no such socket").to_string();
        assert!(refusal.contains(words), "{refusal}");
    };
    let with = |options: &[&str]| {
        sockets.pass_to(&pollux_binary(), &[&["serve"], &DISK[..], options].concat())
    };
    refuses(&mut with(&["--fd-name", "three"]), "there is one, two");
    refuses(&mut with(&[]), "--fd-name");
    let mode = ["--fd-name", "one", "--socket-mode", "0600"];
    refuses(&mut with(&mode), "decides which users may connect");
    refuses(&mut with(&["--fd-name", "one", "--fd", "4"]), "--fd");
    // What is meant for another process is none of ours.
    refuses(
        with(&[]).env("PASSED_TO", "1"),
        "where to listen is missing",
    );
}

/// systemd's own way of passing sockets.
#[test]
fn systemd_passes_sockets() {
    let Some(activate) = peers::installed("systemd-socket-activate") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.sock");
    let mut command = Command::new(activate);
    command.arg("--listen").arg(&path).arg("--fdname=disk");
    command
        .arg(pollux_binary())
        .args(["serve", "--fd-name", "disk"])
        .args(DISK);
    // It starts the daemon once somebody connects.
    let server = Server::start(&mut command, &path, Ready::Listening).unwrap();
    is_used(&path);
    assert!(server.says("serving disk=\"disk\""), "{}", server.log());
    ends_well(server);
}

/// The sample in `dist` as /etc/pollux/root.toml, with the socket of its unit.
#[test]
fn the_sample_configuration_is_served_on_the_socket_of_its_unit() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("root.sock");
    let image = folder.path().join("root.img");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/pollux.toml");
    let text = fs::read_to_string(sample).unwrap();
    let text = text.replace("/srv/pollux/root.img", image.to_str().unwrap());
    let config = folder.path().join("root.toml");
    let mut sockets = Sockets::default();
    sockets.listen("root", &path).unwrap();
    let args = ["serve", "--config", config.to_str().unwrap()];
    let serve = |text: &str| {
        fs::write(&config, text).unwrap();
        let mut command = sockets.pass_to(&pollux_binary(), &args);
        Server::start(&mut command, &path, Ready::LogLine)
    };
    let server = serve(&text).unwrap();
    is_used(&path);
    ends_well(server);
    // A configuration that names the path itself.
    let named = format!("[[disk]]\nsocket-path = {path:?}");
    let refusal = serve(&text.replacen("[[disk]]", &named, 1)).err();
    let refusal = refusal.expect("the socket is systemd's").to_string();
    assert!(
        refusal.contains("the service manager listens on this socket"),
        "{refusal}"
    );
}

#[test]
fn the_service_manager_is_told_once_sockets_take_connections() {
    let folder = TempDir::new().unwrap();
    let manager = folder.path().join("notify");
    let told = UnixDatagram::bind(&manager).unwrap();
    let socket = folder.path().join("a.sock");
    let mut command = pollux_command(&socket, &DISK);
    command.env("NOTIFY_SOCKET", &manager);
    let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
    told.set_nonblocking(true).unwrap();
    let mut text = [0; 64];
    let len = told.recv(&mut text).unwrap();
    assert_eq!(text[..len].trim_ascii(), b"READY=1");
    assert_eq!(
        told.recv(&mut text).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    ends_well(server);
}
