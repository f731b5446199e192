//! Sessions come and go, and leave nothing behind; one that is idle costs nothing.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use blkio::ReqFlags;
use pollux_tests::client::{Client, Queue, Shape};
use pollux_tests::peers;
use pollux_tests::process::{Process, assert_idle, eventually, unchanging};
use pollux_tests::subject::{Disk, Program, Subject};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const QUEUES: u16 = 4;
const SIZE: u64 = 64 << 20;

/// A session of one of four kinds.
fn cycle(socket: &Path, number: u32) {
    match number % 4 {
        0 => drop(Client::connect(socket, Shape::blocking(QUEUES, 128)).unwrap()),
        1 => finished_io(socket),
        // qemu-storage-daemon 7.2 fails an assertion of its own and is gone (`!server->wait_idle`).
        2 if Program::chosen() == Program::QemuStorageDaemon => finished_io(socket),
        2 => io_in_flight(socket),
        _ => half_a_message(socket),
    }
}

fn finished_io(socket: &Path) {
    let (client, mut queues) = Client::connect(socket, Shape::blocking(QUEUES, 128)).unwrap();
    let memory = client.memory(1 << 16).unwrap();
    for queue in &mut queues {
        queue.write(0, &memory, 0..1 << 16, 0, ReqFlags::FUA);
        queue.finish().unwrap().unwrap();
    }
}

/// The connection ends with 16 MiB on their way in each queue.
fn io_in_flight(socket: &Path) {
    const EACH: usize = 1 << 18;
    let (client, mut queues) = Client::connect(socket, Shape::polling(QUEUES, 256)).unwrap();
    let memory = client.memory(64 * EACH).unwrap();
    for queue in &mut queues {
        for token in 0..64 {
            let range = token * EACH..(token + 1) * EACH;
            queue.read(range.start as u64, &memory, range, token);
        }
        queue.wait(0).unwrap();
        while queue.take().is_some() {}
    }
    memory.abandon();
}

/// The first half of a header: the server waits for the rest, which never comes.
fn half_a_message(socket: &Path) {
    UnixStream::connect(socket)
        .unwrap()
        .write_all(&[1, 0, 0, 0, 1, 0])
        .unwrap();
}

#[test]
fn two_hundred_sessions_leave_nothing_behind() {
    // One leaked page a session would be 800 KiB; an allocator that settles stays well below.
    const MEMORY_BOUND: u64 = 512 << 10;
    let subject = Subject::start(Disk::memory(SIZE, QUEUES), &[]).unwrap();
    let process = Process::new(subject.server.pid());
    for number in 0..20 {
        cycle(subject.socket(), number);
    }
    eventually(
        || process.is_asleep().unwrap(),
        || "the server is busy".into(),
    );
    let held = process.holdings().unwrap();
    let memory = process.anonymous_memory().unwrap();

    for number in 0..200 {
        cycle(subject.socket(), number);
    }
    eventually(
        || process.holdings().unwrap() == held,
        || {
            format!(
                "the server holds {:?}, and held {held:?}",
                process.holdings()
            )
        },
    );
    let grown = process.anonymous_memory().unwrap().saturating_sub(memory);
    assert!(
        grown < MEMORY_BOUND,
        "the server has grown by {grown} bytes"
    );
    finished_io(subject.socket());
}

/// `strace` on every thread of a process, until it is dropped.
struct Trace {
    strace: Child,
    file: PathBuf,
    _folder: TempDir,
}

impl Trace {
    /// Attaches, and waits until every thread has been interrupted by that and sleeps again.
    fn attach(program: &Path, process: Process, pid: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("trace");
        let strace = Command::new(program)
            .args(["-f", "-p", &pid.to_string(), "-o"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let trace = Self {
            strace,
            file,
            _folder: folder,
        };
        let threads = process.threads().unwrap();
        let seen = |id: &u32| {
            trace
                .text()
                .lines()
                .any(|line| line.starts_with(&format!("{id} ")))
        };
        eventually(
            || threads.iter().all(seen) && process.is_asleep().unwrap(),
            || format!("not every one of {threads:?} is in {}", trace.text()),
        );
        trace
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.strace), Signal::INT);
        let _ = self.strace.wait();
    }
}

/// Ten thousand reads, as fast as they go.
fn burst(client: &Client, queue: &mut Queue) {
    let memory = client.memory(32 * 4096).unwrap();
    for round in 0..300 {
        for token in 0..32 {
            let range = token * 4096..(token + 1) * 4096;
            queue.read(round * 4096, &memory, range, token);
        }
        let mut outstanding = 32;
        while outstanding > 0 {
            queue.wait(1).unwrap();
            while let Some(done) = queue.take() {
                done.result.unwrap();
                outstanding -= 1;
            }
        }
    }
}

fn an_idle_session_wakes_nobody(disk: Disk) {
    // That nothing happens can only be seen by watching for a while.
    const WATCHED: Duration = Duration::from_secs(5);
    let Some(strace) = peers::installed("strace") else {
        return;
    };
    let subject = Subject::start(disk, &[]).unwrap();
    let process = Process::new(subject.server.pid());
    let (client, mut queues) =
        Client::connect(subject.socket(), Shape::blocking(QUEUES, 128)).unwrap();
    burst(&client, &mut queues[0]);
    assert_idle(process, WATCHED / 2);

    let trace = Trace::attach(&strace, process, subject.server.pid());
    let traced = unchanging(|| trace.text());
    let activity = || (process.sleeps().unwrap(), process.cpu_ns().unwrap());
    let activity_at_rest = unchanging(activity);
    std::thread::sleep(WATCHED);
    assert_eq!(trace.text(), traced, "a system call");

    // Both watchers do see a server that works.
    queues[1].flush(0);
    queues[1].finish().unwrap().unwrap();
    let seen = || trace.text() != traced && activity() != activity_at_rest;
    eventually(seen, || "a request leaves no trace".into());
}

#[test]
fn an_idle_session_on_null_wakes_nobody() {
    an_idle_session_wakes_nobody(Disk::null(SIZE, QUEUES));
}

/// (`qemu-storage-daemon` fails the next two: its pool of threads shrinks after ten seconds.)
#[test]
fn an_idle_session_on_memory_wakes_nobody() {
    an_idle_session_wakes_nobody(Disk::memory(SIZE, QUEUES));
}

#[test]
fn an_idle_session_on_a_file_wakes_nobody() {
    an_idle_session_wakes_nobody(Disk::file(SIZE, QUEUES));
}

#[test]
fn a_lonely_request_wakes_its_worker_alone() {
    const REQUESTS: u64 = 20;
    if Program::chosen() != Program::Pollux {
        return;
    }
    let subject = Subject::start(Disk::null(SIZE, QUEUES), &[]).unwrap();
    let process = Process::new(subject.server.pid());
    let (_client, mut queues) =
        Client::connect(subject.socket(), Shape::blocking(QUEUES, 128)).unwrap();
    let mut worker = None;
    let is_there = || {
        worker = process.thread_named("worker-0").ok();
        worker.is_some()
    };
    // A list of threads may lack one while others end.
    eventually(is_there, || "no thread is called worker-0".into());
    let worker = worker.expect("it is there");
    let rests = || process.is_asleep().unwrap();
    // Of the worker, and of all others.
    let slept = || {
        eventually(rests, || "the server is busy".into());
        let mut sleeps = process.sleeps().unwrap();
        (sleeps.remove(&worker).expect("it is there"), sleeps)
    };
    let before = slept();
    for _ in 0..REQUESTS {
        queues[0].flush(0);
        queues[0].finish().unwrap().unwrap();
        eventually(rests, || "the server is busy".into());
    }
    let after = slept();
    assert!(after.0 >= before.0 + REQUESTS, "it slept {} times", after.0);
    for (thread, sleeps) in after.1 {
        assert_eq!(before.1.get(&thread), Some(&sleeps), "thread {thread}");
    }
}
