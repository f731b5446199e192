//! Files behind a daemon whose system calls fail or are watched: what reaches the guest, what the log says,
//! and that a worker never waits for storage.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use blkio::ReqFlags;
use pollux_tests::client::{Client, Memory, Queue, Shape};
use pollux_tests::frontend::{self, Driver, Plan, Status, TWO_QUEUES, feature};
use pollux_tests::peers;
use pollux_tests::process::{Process, eventually};
use pollux_tests::server::{Ready, Server, pollux_binary, pollux_command};
use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;

/// A folder on a file system that has storage below it, with an image in it.
fn image() -> (TempDir, PathBuf) {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("disk.img");
    fs::write(&path, vec![7; usize::try_from(SIZE).unwrap()]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    (folder, path)
}

/// `command`, in which system calls fail as `injection` says, which is in the words of `strace`.
fn injected(strace: &Path, injection: &str, command: &Command) -> Command {
    let mut with = Command::new(strace);
    // Detached: what is started is the command, and the tracer its child.
    with.args(["-D", "-f", "-o", "/dev/null", "-e"]);
    with.arg(format!("inject={injection}"));
    with.arg(command.get_program()).args(command.get_args());
    with
}

fn connect(socket: &Path) -> (Client, Queue, Memory) {
    let (client, mut queues) = Client::connect(socket, Shape::blocking(1, 128)).unwrap();
    let memory = client.memory(1 << 20).unwrap();
    (client, queues.pop().unwrap(), memory)
}

fn write(queue: &mut Queue, memory: &Memory, at: u64, flags: ReqFlags) -> Result<(), Errno> {
    queue.write(at, memory, 0..65536, 0, flags);
    queue.finish().unwrap()
}

/// Waits for so many requests, which succeed.
fn finish_all(queue: &mut Queue, mut left: usize) {
    while left > 0 {
        queue.wait(1).unwrap();
        while let Some(done) = queue.take() {
            assert_eq!(done.result, Ok(()));
            left -= 1;
        }
    }
}

fn flush(queue: &mut Queue) -> Result<(), Errno> {
    queue.flush(0);
    queue.finish().unwrap()
}

#[test]
fn where_io_uring_is_forbidden_threads_do_its_work_and_the_log_says_so_once() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let (folder, first) = image();
    let second = folder.path().join("second.img");
    fs::copy(&first, &second).unwrap();
    let socket = |name: &str| folder.path().join(name);
    let config = folder.path().join("pollux.toml");
    let disk = |path: &Path, name: &str| {
        let (socket, path) = (socket(name), path.display());
        let socket = socket.display();
        format!("[[disk]]\nsocket-path = \"{socket}\"\ndisk = \"file:path={path},inline=off\"\n")
    };
    fs::write(&config, disk(&first, "a.sock") + &disk(&second, "b.sock")).unwrap();
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--config"]).arg(&config);
    let mut command = injected(&strace, "io_uring_setup:error=EPERM", &command);
    let server = Server::start(&mut command, &socket("b.sock"), Ready::LogLine).unwrap();
    for name in ["a.sock", "b.sock"] {
        let (_client, mut queue, memory) = connect(&socket(name));
        memory.fill(0..65536, 0x5a);
        assert_eq!(write(&mut queue, &memory, 4096, ReqFlags::FUA), Ok(()));
        memory.fill(0..65536, 0);
        queue.read(4096, &memory, 0..65536, 0);
        assert_eq!(queue.finish().unwrap(), Ok(()));
        let mut bytes = vec![0; 65536];
        memory.get(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0x5a));
    }
    let (_, log) = server.terminate().unwrap();
    assert_eq!(log.matches("there is no io_uring here").count(), 1, "{log}");
}

#[test]
fn where_io_uring_is_forbidden_and_insisted_on_the_error_says_so() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let (folder, path) = image();
    let spec = format!("file:path={},engine=io_uring", path.display());
    let command = pollux_command(&folder.path().join("disk.sock"), &["--disk", &spec]);
    let output = injected(&strace, "io_uring_setup:error=EPERM", &command)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("disk.img") && told.contains("use `engine=auto`"),
        "{told}"
    );
}

#[test]
fn a_flush_that_failed_fails_until_the_daemon_opens_the_file_anew() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let (folder, path) = image();
    let socket = folder.path().join("disk.sock");
    let spec = format!("file:path={}", path.display());
    let command = pollux_command(&socket, &["--disk", &spec]);
    let mut failing = injected(&strace, "fdatasync:error=EIO:when=1", &command);
    let server = Server::start(&mut failing, &socket, Ready::LogLine).unwrap();
    for session in 0..2 {
        let (_client, mut queue, memory) = connect(&socket);
        if session == 0 {
            assert_eq!(write(&mut queue, &memory, 0, ReqFlags::empty()), Ok(()));
        }
        // The kernel would say that all is well: only the first sync of a thread failed.
        assert_eq!(flush(&mut queue), Err(Errno::IO));
        assert_eq!(flush(&mut queue), Err(Errno::IO));
        assert_eq!(write(&mut queue, &memory, 0, ReqFlags::FUA), Err(Errno::IO));
        queue.read(0, &memory, 0..65536, 0);
        assert_eq!(queue.finish().unwrap(), Ok(()), "reading goes on");
    }
    let (_, log) = server.terminate().unwrap();
    let told = "cannot put data on stable storage";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(log.contains(path.to_str().unwrap()), "{log}");

    let server = Server::pollux(&socket, &["--disk", &spec]).unwrap();
    let (_client, mut queue, _memory) = connect(server.socket());
    assert_eq!(flush(&mut queue), Ok(()));
}

#[test]
fn a_write_that_failed_is_told_to_the_guest_and_with_its_place_to_the_log() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let (folder, path) = image();
    let socket = folder.path().join("disk.sock");
    let spec = format!("file:path={},engine=threads,inline=off", path.display());
    let command = pollux_command(&socket, &["--disk", &spec]);
    // The first of each thread's, and any thread of the pool may take a write.
    let mut failing = injected(&strace, "pwrite64,pwritev2:error=ENOSPC:when=1", &command);
    let server = Server::start(&mut failing, &socket, Ready::LogLine).unwrap();
    let (_client, mut queue, memory) = connect(&socket);
    let mut write_there = || write(&mut queue, &memory, 1 << 20, ReqFlags::empty());
    assert_eq!(write_there(), Err(Errno::IO));
    assert!(
        (0..32).any(|_| write_there() == Ok(())),
        "writing goes on once each thread has failed"
    );
    let (_, log) = server.terminate().unwrap();
    let line = log.lines().find(|line| line.contains("cannot write"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    for part in [
        path.to_str().unwrap(),
        "at=1048576",
        "len=65536",
        "No space left",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// Shows the driver's request in slot 0 to the device, which succeeds.
fn succeed(queue: &mut frontend::Queue) {
    queue.publish_and_kick();
    assert_eq!(queue.finish(), [0]);
    assert_eq!(queue.status(0), Status::Ok);
}

/// As many writes, one after the other.
fn write_ten(driver: &mut Driver) {
    let queue = &mut driver.queues[0];
    for sector in 0..10 {
        queue.write(0, sector * 8, 1);
        succeed(queue);
    }
}

#[test]
fn writes_are_synced_where_the_driver_cannot_flush_or_switched_the_cache() {
    /// In the configuration space (VIRTIO 1.3, 5.2.4).
    const WRITEBACK: u32 = 32;
    /// `VIRTIO_BLK_T_FLUSH`
    const FLUSH: u32 = 4;
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    for engine in ["io_uring", "threads"] {
        let (folder, path) = image();
        let (socket, trace) = (folder.path().join("disk.sock"), folder.path().join("trace"));
        let spec = format!("file:path={},engine={engine}", path.display());
        let command = pollux_command(&socket, &["--disk", &spec]);
        let mut traced = Command::new(&strace);
        traced.args(["-D", "-f", "-e", "trace=fdatasync", "-o"]);
        traced.arg(&trace).arg(command.get_program());
        traced.args(command.get_args());
        let server = Server::start(&mut traced, &socket, Ready::LogLine).unwrap();
        let mut before = 0;
        let mut syncs = || {
            let text = fs::read_to_string(&trace).unwrap();
            let seen = text.matches("fdatasync(").count();
            seen - std::mem::replace(&mut before, seen)
        };

        let mut driver = Driver::connect(&socket, TWO_QUEUES)
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        write_ten(&mut driver);
        assert_eq!(syncs(), 0, "the driver flushes when it wants to");
        driver.queues[0].bare(0, FLUSH);
        succeed(&mut driver.queues[0]);
        assert_eq!(syncs(), 1);
        driver.frontend.set_config(WRITEBACK, &[0]).unwrap();
        write_ten(&mut driver);
        assert_eq!(syncs(), 10, "{engine}: write-through");
        driver.frontend.set_config(WRITEBACK, &[1]).unwrap();
        write_ten(&mut driver);
        assert_eq!(syncs(), 0, "{engine}: write-back again");
        drop(driver);

        let without = feature::FLUSH | feature::CONFIG_WCE;
        let plan = Plan {
            without,
            ..TWO_QUEUES
        };
        let mut driver = Driver::connect(&socket, plan).unwrap();
        write_ten(&mut driver);
        assert_eq!(syncs(), 10, "{engine}: this driver cannot flush");
    }
}

/// `strace` on one thread, until it is dropped.
struct Watched {
    strace: Child,
    file: PathBuf,
}

impl Watched {
    fn worker(strace: &Path, process: Process, folder: &Path) -> io::Result<Self> {
        let worker = process.thread_named("worker-0")?;
        let file = folder.join("trace");
        let strace = Command::new(strace)
            .args(["-y", "-p", &worker.to_string(), "-o"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()?;
        let watched = Self { strace, file };
        // To attach interrupts its sleep, which it then begins again.
        eventually(|| !watched.text().is_empty(), || "nothing is traced".into());
        Ok(watched)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.strace), Signal::INT);
        let _ = self.strace.wait();
    }
}

/// Cold and cached reads, writes, flushes, ranges: all that the worker's thread ever asks of the image itself
/// says that it will not wait. The rest it hands over.
#[test]
fn a_worker_never_waits_for_storage() {
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    for engine in ["io_uring", "threads"] {
        let (folder, path) = image();
        let socket = folder.path().join("disk.sock");
        let spec = format!("file:path={},engine={engine}", path.display());
        let server = Server::pollux(&socket, &["--disk", &spec]).unwrap();
        let (_client, mut queue, memory) = connect(&socket);
        assert_eq!(flush(&mut queue), Ok(()));
        let process = Process::new(server.pid());
        let watched = Watched::worker(&strace, process, folder.path()).unwrap();
        let mut at = 0;
        for round in 0..8 {
            let file = fs::File::open(&path).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, NonZeroU64::new(SIZE), Advice::DontNeed).unwrap();
            // All of it is cold: many at once, then one after the other.
            for together in [16, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] {
                for token in 0..together {
                    let range = token * 65536..(token + 1) * 65536;
                    queue.read(at, &memory, range, token);
                    at += 65536;
                }
                finish_all(&mut queue, together);
            }
            assert_eq!(
                write(&mut queue, &memory, round << 20, ReqFlags::empty()),
                Ok(())
            );
            assert_eq!(
                write(&mut queue, &memory, round << 20, ReqFlags::FUA),
                Ok(())
            );
            assert_eq!(flush(&mut queue), Ok(()));
            queue.discard(round << 20, 65536, 0);
            assert_eq!(queue.finish().unwrap(), Ok(()));
            queue.write_zeroes(round << 20, 65536, 0, ReqFlags::empty());
            assert_eq!(queue.finish().unwrap(), Ok(()));
        }
        let text = watched.text();
        let of_image: Vec<_> = text
            .lines()
            .filter(|line| line.contains("disk.img>"))
            .collect();
        let waits: Vec<_> = of_image
            .iter()
            .filter(|line| !line.contains("RWF_NOWAIT"))
            .collect();
        assert!(waits.is_empty(), "{engine}: {waits:#?}");
        assert!(
            of_image.len() > 100,
            "the trace has not seen the reads: {text}"
        );
    }
}
