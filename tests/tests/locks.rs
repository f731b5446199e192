//! An image that Pollux serves and QEMU's programs want, and the other way round.
//!
//! Pollux locks as QEMU's virtual machines do, so beside Pollux every program of QEMU, old and new, is
//! allowed exactly what it is allowed beside a virtual machine.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pollux_tests::client::{Access, Client, Shape};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::{Server, pollux_binary};
use rustix::process::Signal;
use tempfile::TempDir;

/// The programs of one QEMU.
struct Qemu {
    machine: PathBuf,
    daemon: PathBuf,
    img: PathBuf,
}

impl Qemu {
    /// The installed one and the one beside it; none where one is missing.
    fn old_and_new() -> Vec<Self> {
        let found = || {
            let old = Self {
                machine: peers::installed("qemu-system-x86_64")?,
                daemon: peers::installed("qemu-storage-daemon")?,
                img: peers::installed("qemu-img")?,
            };
            let new = Self {
                machine: peers::fetched("qemu10/bin/qemu-system-x86_64")?,
                daemon: peers::fetched("qemu10/bin/qemu-storage-daemon")?,
                img: peers::fetched("qemu10/bin/qemu-img")?,
            };
            Some(vec![old, new])
        };
        found().unwrap_or_default()
    }

    /// Does `qemu-img` do this to the image?
    fn img(&self, command: &str, image: &Path, rest: &[&str]) -> bool {
        let output = Command::new(&self.img)
            .args(command.split(' '))
            .arg(image)
            .args(rest)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let locked = said.contains("lock");
        assert_eq!(
            !output.status.success(),
            locked,
            "qemu-img {command}: {said}"
        );
        !locked
    }

    /// A virtual machine that has `image` as a disk, and has not begun to run.
    fn machine(&self, image: &Path, access: Access) -> io::Result<Machine> {
        let read_only = match access {
            Access::ReadOnly => "on",
            Access::ReadWrite => "off",
        };
        let path = image.display();
        let drive = format!("if=none,id=disk,format=raw,file={path},read-only={read_only}");
        let mut qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.machine)
            .args(["-accel", "tcg", "-M", "q35", "-S", "-nodefaults"])
            .args(["-display", "none", "-qmp", "stdio", "-drive", &drive])
            .args(["-device", "virtio-blk-pci,drive=disk"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // It answers once everything is set up.
        let mut monitor = qemu.stdin.take().expect("it is piped");
        let _ = writeln!(monitor, r#"{{"execute": "qmp_capabilities"}}"#);
        let answers = BufReader::new(qemu.stdout.take().expect("it is piped"));
        let mut answers = answers.lines().map_while(Result::ok);
        if answers.any(|line| line.contains("\"return\"")) {
            return Ok(Machine {
                qemu,
                _monitor: monitor,
            });
        }
        let mut said = String::new();
        let mut errors = qemu.stderr.take().expect("it is piped");
        errors.read_to_string(&mut said)?;
        qemu.wait()?;
        Err(io::Error::other(said))
    }

    /// A `qemu-storage-daemon` that would write `image`.
    fn daemon(&self, image: &Path) -> io::Result<Server> {
        let blockdev = format!("driver=file,filename={}", image.display());
        Server::qemu_storage_daemon(&self.daemon, &image.with_extension("qsd"), &blockdev, 1)
    }
}

/// A running QEMU. Dropping it ends it.
struct Machine {
    qemu: Child,
    /// QEMU ends when nobody holds the other end.
    _monitor: std::process::ChildStdin,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn image(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("disk.img");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    path
}

fn pollux(image: &Path, access: Access) -> io::Result<Server> {
    let spec = format!("file:path={}", image.display());
    let mut args = vec!["--disk", &spec];
    if access == Access::ReadOnly {
        args.push("--read-only");
    }
    // Two that both want to serve must not meet at the socket.
    let socket = image.with_extension(format!("{access:?}.sock"));
    Server::pollux(&socket, &args)
}

/// What the programs of `qemu` are not allowed to do to `image`.
fn refused_to(qemu: &Qemu, image: &Path) -> Vec<&'static str> {
    let copy = image.with_extension("copy");
    let copy = copy.to_str().unwrap();
    let attempts = [
        ("write", qemu.img("bench -w -c 1 -f raw", image, &[])),
        ("resize", qemu.img("resize -f raw", image, &["8M"])),
        ("copy", qemu.img("convert -f raw -O raw", image, &[copy])),
        ("look", qemu.img("info -f raw", image, &[])),
        (
            "run a machine",
            qemu.machine(image, Access::ReadWrite).is_ok(),
        ),
        (
            "run a machine that reads",
            qemu.machine(image, Access::ReadOnly).is_ok(),
        ),
        ("serve", qemu.daemon(image).is_ok()),
    ];
    let refused = |(what, done): (_, bool)| (!done).then_some(what);
    attempts.into_iter().filter_map(refused).collect()
}

/// What they must not be allowed to do beside somebody with such access.
const fn refused_beside(access: Access) -> &'static [&'static str] {
    match access {
        Access::ReadWrite => &[
            "write",
            "resize",
            "copy",
            "run a machine",
            "run a machine that reads",
            "serve",
        ],
        Access::ReadOnly => &["write", "resize", "run a machine", "serve"],
    }
}

#[test]
fn beside_pollux_qemu_may_do_what_it_may_beside_a_machine() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    for qemu in Qemu::old_and_new() {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let machine = qemu.machine(&image, access).unwrap();
            assert_eq!(refused_to(&qemu, &image), refused_beside(access));
            drop(machine);
            let server = pollux(&image, access).unwrap();
            assert_eq!(refused_to(&qemu, &image), refused_beside(access));
            // What is refused does no harm to what is served.
            let (status, log) = server.terminate().unwrap();
            assert!(status.success(), "{status}: {log}");
        }
    }
}

/// Pollux must not start, and say why.
fn is_refused(image: &Path, access: Access, holder: u32) {
    let said = pollux(image, access)
        .err()
        .expect("it is in use")
        .to_string();
    let name = image.to_str().unwrap();
    for words in [name, "in use", &format!("process {holder} (qemu-s")] {
        assert!(said.contains(words), "{said} should tell {words}");
    }
}

#[test]
fn what_a_machine_writes_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    for qemu in Qemu::old_and_new() {
        let machine = qemu.machine(&image, Access::ReadWrite).unwrap();
        is_refused(&image, Access::ReadWrite, machine.qemu.id());
        is_refused(&image, Access::ReadOnly, machine.qemu.id());
    }
}

#[test]
fn what_a_daemon_writes_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    for qemu in Qemu::old_and_new() {
        let daemon = qemu.daemon(&image).unwrap();
        is_refused(&image, Access::ReadWrite, daemon.pid());
        is_refused(&image, Access::ReadOnly, daemon.pid());
    }
}

#[test]
fn what_a_machine_reads_is_read_beside_it_and_not_written() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    for qemu in Qemu::old_and_new() {
        let machine = qemu.machine(&image, Access::ReadOnly).unwrap();
        is_refused(&image, Access::ReadWrite, machine.qemu.id());
        pollux(&image, Access::ReadOnly).unwrap();
    }
}

#[test]
fn when_one_has_ended_the_other_begins() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    for qemu in Qemu::old_and_new() {
        let server = pollux(&image, Access::ReadWrite).unwrap();
        server.terminate().unwrap();
        let machine = qemu.machine(&image, Access::ReadWrite).unwrap();
        drop(machine);
        let server = pollux(&image, Access::ReadWrite).unwrap();
        server.end_by(Signal::KILL).unwrap();
        // The kernel closes the files of an `io_uring` a little after its process has died.
        let mut machine = None;
        eventually(
            || {
                machine = qemu.machine(&image, Access::ReadWrite).ok();
                machine.is_some()
            },
            || "the image is locked by a process that was killed".into(),
        );
        drop(machine);
        // Pollux itself waits for that.
        let server = pollux(&image, Access::ReadWrite).unwrap();
        server.end_by(Signal::KILL).unwrap();
        pollux(&image, Access::ReadWrite).unwrap();
    }
}

/// The second one is started by mistake, or too early: it is refused, by the sandboxed daemon's error, and is in
/// nobody's way after that.
#[test]
fn a_daemon_that_is_refused_an_image_leaves_it_to_others() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    let spec = format!("file:path={},lock=running", image.display());
    let serve = |name: &str| {
        Server::pollux(
            &folder.path().join(name),
            &["--disk", &spec, "--sandbox", "on"],
        )
        .unwrap()
    };
    let [first, second] = ["first", "second"].map(serve);
    let first_guest = Client::connect(first.socket(), Shape::polling(1, 64)).unwrap();
    for refusals in 1..=2 {
        // Whether the client hears of it depends on when it looks.
        let _guest = Client::connect(second.socket(), Shape::polling(1, 64));
        eventually(
            || {
                second
                    .log()
                    .matches("is in use: another program, or another disk of this daemon (`fuser ")
                    .count()
                    == refusals
            },
            || second.log(),
        );
    }
    drop(first_guest);
    first.terminate().unwrap();
    let next = pollux(&image, Access::ReadWrite).unwrap();
    next.terminate().unwrap();
    let guest = Client::connect(second.socket(), Shape::polling(1, 64)).unwrap();
    drop(guest);
    let (status, log) = second.terminate().unwrap();
    assert!(status.success(), "{status}: {log}");
}

/// The text names the section to correct, and no process: it would be the one that is being started.
#[test]
fn two_disks_of_one_daemon_have_an_image_each() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder);
    let config = folder.path().join("pollux.toml");
    let image = image.display();
    for second in [
        format!("file:path={image}"),
        format!("linear:{image}+memory:size=1M"),
        format!("striped:chunk=64K:{image},{image}.copy"),
    ] {
        let disk = |name: &str, spec: &str| {
            let socket = folder.path().join(name);
            format!("[[disk]]\nsocket-path = {socket:?}\ndisk = {spec:?}\n")
        };
        let first = disk("a.sock", &format!("file:path={image}"));
        std::fs::copy(image.to_string(), format!("{image}.copy")).unwrap();
        std::fs::write(&config, first + &disk("b.sock", &second)).unwrap();
        let mut command = Command::new(pollux_binary());
        let output = command.args(["serve", "--config"]).arg(&config).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        for words in ["[[disk]] number 2: ", "an image of its own"] {
            assert!(said.contains(words), "{second}: {said}");
        }
        assert!(!said.contains("end that"), "{second}: {said}");
    }
}
