//! The sandbox of `pollux serve`: that it is there, that it holds, and that nothing else suffers.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use blkio::ReqFlags;
use pollux_tests::client::{Client, Shape};
use pollux_tests::peers;
use pollux_tests::process::{Process, eventually};
use pollux_tests::server::{Ready, Server, pollux_binary, pollux_command};
use pollux_tests::storage::{Medium, Storage};
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;
/// The user that owns nothing, and its group.
const NOBODY: u32 = 65534;

/// One request of each kind, on both of two queues, which two workers serve.
fn use_it(socket: &Path) {
    let (client, mut queues) = Client::connect(socket, Shape::blocking(2, 128)).unwrap();
    let memory = client.memory(1 << 20).unwrap();
    for queue in &mut queues {
        memory.fill(0..65536, 0xa5);
        for flags in [ReqFlags::empty(), ReqFlags::FUA] {
            queue.write(4096, &memory, 0..65536, 0, flags);
            assert_eq!(queue.finish().unwrap(), Ok(()));
        }
        memory.fill(0..65536, 0);
        queue.read(4096, &memory, 0..65536, 0);
        assert_eq!(queue.finish().unwrap(), Ok(()));
        let mut bytes = vec![0; 65536];
        memory.get(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0xa5));
        // Not aligned, as direct I/O wants it; and more than is done one by one.
        queue.read_vectored(0, &memory, &[1..513, 513..1025], 0);
        assert_eq!(queue.finish().unwrap(), Ok(()));
        for token in 0..32 {
            queue.read(4096, &memory, token * 4096..(token + 1) * 4096, token);
        }
        let mut left = 32;
        while left > 0 {
            queue.wait(1).unwrap();
            while let Some(done) = queue.take() {
                assert_eq!(done.result, Ok(()));
                left -= 1;
            }
        }
        queue.discard(1 << 20, 1 << 20, 0);
        assert_eq!(queue.finish().unwrap(), Ok(()));
        queue.write_zeroes(1 << 20, 1 << 20, 0, ReqFlags::empty());
        assert_eq!(queue.finish().unwrap(), Ok(()));
        queue.flush(0);
        assert_eq!(queue.finish().unwrap(), Ok(()));
    }
}

/// What `/proc` says of `field` for each thread of `server`.
fn of_threads(server: &Server, field: &str) -> Vec<(String, u64)> {
    let threads = Process::new(server.pid()).threads().unwrap();
    let told = threads.into_iter().filter_map(|id| {
        // Threads of the kernel's, which do I/O for the server, end when they like.
        let status = fs::read_to_string(format!("/proc/{}/task/{id}/status", server.pid())).ok()?;
        let value = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.unwrap_or_default().trim().to_owned()
        };
        let name = if id == server.pid() {
            "main".to_owned()
        } else {
            value("Name:")
        };
        Some((name, value(field).parse().unwrap()))
    });
    told.collect()
}

fn is_confined(server: &Server) {
    for (field, wanted) in [("NoNewPrivs:", 1), ("Seccomp:", 2)] {
        let told = of_threads(server, field);
        assert!(told.iter().all(|(_, is)| *is == wanted), "{field} {told:?}");
    }
    // Two that refuse, and its own. What is born of main later has that as well as its own, a moment after.
    let lacks = || {
        let filters = of_threads(server, "Seccomp_filters:").into_iter();
        let mut lacking = filters.filter(|(name, count)| {
            let early = ["main", "driver-control"].contains(&name.as_str());
            *count < if early { 3 } else { 4 }
        });
        lacking.next()
    };
    eventually(
        || lacks().is_none(),
        || format!("{:?} is not confined", lacks()),
    );
}

/// Disks of every kind are used from a sandbox that is complete, and end cleanly.
#[test]
fn every_kind_of_disk_works_inside() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = folder.path().join("disk.img");
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    let below = folder.path().join("below.sock");
    let memory = format!("memory:size={SIZE}");
    let Some(storage) = Storage::new(Medium::BlockDevice, SIZE) else {
        return;
    };
    let device = storage.disk().display().to_string();
    let server_below = Server::pollux(&below, &["--disk", &memory]).unwrap();
    let file = format!("file:path={}", image.display());
    let specs = [
        memory.clone(),
        file.clone(),
        format!("{file},cache=none,buffers=registered"),
        format!("{file},cache=writethrough,inline=off"),
        format!("{file},engine=threads,inline=off"),
        format!("{file},engine=threads,cache=none"),
        format!("file:path={device}"),
        format!("file:path={device},engine=threads,cache=none"),
        format!("fault:delay=1ms,every=3,on={file}"),
        format!("fault:delay=1ms,every=3,on={memory}"),
        format!("vhost-user:path={}", below.display()),
    ];
    let socket = folder.path().join("disk.sock");
    for spec in specs {
        let options = ["--disk", &spec, "--threads", "2", "--sandbox", "require"];
        let server = Server::pollux(&socket, &options).unwrap();
        assert!(
            server.says("sandbox in force: no_new_privs; Landlock"),
            "{}",
            server.log()
        );
        is_confined(&server);
        use_it(&socket);
        let _client = Client::connect(&socket, Shape::blocking(2, 64)).unwrap();
        is_confined(&server);
        // What is told last comes from the thread that waits for signals.
        server.signal(rustix::process::Signal::USR1).unwrap();
        assert!(server.says("peer faults"), "{spec}: {}", server.log());
        let (status, log) = server.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "{spec}: {status}\n{log}");
        assert!(!socket.exists(), "{spec} leaves its socket behind");
    }
    let (status, log) = server_below.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
}

#[test]
fn what_is_asked_for_in_the_configuration_file_holds() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let config = folder.path().join("pollux.toml");
    let text = format!(
        "[process]\nsandbox = \"off\"\n[[disk]]\nsocket-path = {:?}\ndisk = \"memory:size=1M\"\n",
        socket.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--config"]).arg(&config);
    let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
    assert!(server.says("no sandbox, as asked"), "{}", server.log());
    for field in ["NoNewPrivs:", "Seccomp:"] {
        let told = of_threads(&server, field);
        assert!(told.iter().all(|(_, is)| *is == 0), "{field} {told:?}");
    }
    // The command line has the last word.
    drop(server);
    command.args(["--sandbox", "on"]);
    let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
    is_confined(&server);
}

/// A user without any rights, and one who owns only the folder, is confined and serves all the same.
#[test]
fn no_privileges_are_needed() {
    let Some(setpriv) = peers::installed("setpriv") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("pollux");
    fs::copy(pollux_binary(), &program).unwrap();
    let image = folder.path().join("disk.img");
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    for path in [folder.path(), &image] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let socket = folder.path().join("disk.sock");
    let mut command = Command::new(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command
        .arg(&program)
        .args(["serve", "--threads", "2", "--sandbox", "require"]);
    command
        .arg("--blk-file")
        .arg(&image)
        .arg("--socket-path")
        .arg(&socket);
    let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
    is_confined(&server);
    use_it(&socket);
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{status}\n{log}");
    assert!(!socket.exists());
}

/// `pollux serve` on a kernel that answers this call with ENOSYS.
fn without(call: &str, strace: &Path, socket: &Path, level: &str) -> Command {
    let inner = pollux_command(socket, &["--disk", "memory:size=1M", "--sandbox", level]);
    let mut command = Command::new(strace);
    command.args(["-D", "-f", "-o", "/dev/null", "-e"]);
    command.arg(format!("inject={call}:error=ENOSYS"));
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

#[test]
fn what_the_kernel_lacks_is_said_and_where_it_is_required_nothing_starts() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    for (call, layer) in [
        ("landlock_create_ruleset", "Landlock"),
        ("seccomp", "seccomp"),
    ] {
        let mut command = without(call, &strace, &socket, "require");
        let refusal = Server::start(&mut command, &socket, Ready::LogLine).err();
        let refusal = refusal.expect("it is required").to_string();
        let told = format!("--sandbox require: {layer}");
        assert!(refusal.contains(&told), "{refusal}");
        assert!(!refusal.contains("status: 0"), "{refusal}");
        assert!(!socket.exists());

        let mut command = without(call, &strace, &socket, "on");
        let server = Server::start(&mut command, &socket, Ready::LogLine).unwrap();
        assert!(
            server.says(&format!("sandbox without {layer}")),
            "{}",
            server.log()
        );
        assert!(
            server.says("sandbox in force: no_new_privs"),
            "{}",
            server.log()
        );
        Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
        server.terminate().unwrap();
    }
}

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    /// With the error that says so.
    Refused,
    /// The process dies of SIGSYS.
    Dies,
}

fn attempt(kind: &str, what: &str, folder: &Path) -> (Fate, Output) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_confined"));
    let output = command.args([kind, what]).arg(folder).output().unwrap();
    let fate = match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Fate::Done,
        (Some(1), _) => Fate::Refused,
        (_, Some(libc::SIGSYS)) => Fate::Dies,
        _ => panic!("{kind} {what}: {output:?}"),
    };
    (fate, output)
}

#[test]
fn what_a_thread_need_not_do_it_cannot() {
    use Fate::{Dies, Done, Refused};
    const KINDS: [&str; 8] = [
        "main",
        "signals",
        "session",
        "worker",
        "pool",
        "driver-control",
        "control",
        "resizer",
    ];
    let table: &[(&str, Fate, &[&str])] = &[
        ("wait", Done, &KINDS),
        ("run-a-program", Dies, &KINDS),
        ("start-a-process", Dies, &KINDS),
        ("read-a-file", Refused, &KINDS),
        ("read-the-image", Refused, &KINDS),
        ("make-a-file", Refused, &KINDS),
        ("write-the-image", Refused, &KINDS),
        ("write-what-was-read", Refused, &KINDS),
        ("remove-a-socket", Done, &["main", "session"]),
        (
            "remove-a-socket",
            Dies,
            &["worker", "pool", "signals", "driver-control", "control"],
        ),
        ("remove-another-file", Refused, &["main", "session"]),
        ("talk-tcp", Dies, &KINDS),
        ("talk-udp", Dies, &KINDS),
        ("signal-the-parent", Dies, &KINDS),
        ("signal-a-thread-of-the-parent", Dies, &KINDS),
        ("write-code", Dies, &KINDS),
        ("become-somebody", Dies, &KINDS),
        // What opens disks that are added later may do that in their folders, and no more than others elsewhere.
        ("wait", Done, &["opener"]),
        ("read-the-image", Done, &["opener"]),
        ("make-a-file", Done, &["opener"]),
        ("remove-a-socket", Done, &["opener"]),
        ("read-a-file", Refused, &["opener", "keeper"]),
        ("read-above", Refused, &["opener"]),
        ("read-through-a-link", Refused, &["opener"]),
        ("move-a-file-out", Dies, &["opener"]),
        ("remove-another-file", Refused, &["opener"]),
        // An image could name the list of disks as its own part.
        ("keep-the-list", Refused, &["opener", "session", "control"]),
        ("run-a-program", Dies, &["opener", "keeper"]),
        ("start-a-process", Dies, &["opener", "keeper"]),
        ("talk-tcp", Dies, &["opener", "keeper"]),
        ("talk-udp", Dies, &["opener", "keeper"]),
        ("signal-the-parent", Dies, &["opener", "keeper"]),
        ("write-code", Dies, &["opener", "keeper"]),
        ("become-somebody", Dies, &["opener", "keeper"]),
        // What keeps the list of these disks can do nothing else.
        ("keep-the-list", Done, &["keeper"]),
        ("read-the-image", Refused, &["keeper"]),
        ("make-a-file", Refused, &["keeper"]),
        ("move-a-file-out", Refused, &["keeper"]),
        ("remove-a-socket", Dies, &["keeper"]),
    ];
    for (what, wanted, kinds) in table {
        for kind in *kinds {
            let above = TempDir::new().unwrap();
            let folder = above.path().join("sockets");
            fs::create_dir(&folder).unwrap();
            fs::create_dir(above.path().join("list")).unwrap();
            for name in ["kept", "sockets/image", "sockets/socket"] {
                fs::write(above.path().join(name), "precious").unwrap();
            }
            symlink("../kept", folder.join("link")).unwrap();
            let (fate, output) = attempt(kind, what, &folder);
            assert_eq!(fate, *wanted, "{kind} {what}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            let told = String::from_utf8_lossy(&output.stdout);
            match wanted {
                // Whoever starts a process blocks all signals meanwhile, so no handler runs.
                Dies if *what == "start-a-process" => {}
                Dies => assert!(
                    said.contains(&format!("a thread of the kind `{kind}` made system call")),
                    "{kind} {what}: {said}"
                ),
                // What lies in another folder is as if on another device.
                Refused => assert!(
                    told.contains("denied") || told.contains("cross-device"),
                    "{kind} {what}: {told}"
                ),
                Done => {}
            }
            assert_eq!(
                fs::read_to_string(above.path().join("kept")).unwrap(),
                "precious"
            );
            assert_eq!(
                fs::read_to_string(folder.join("image")).unwrap(),
                "precious"
            );
        }
    }
}
