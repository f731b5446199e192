//! A server of a disk that another daemon uses is killed, and what it had in its own memory goes with it. A write that
//! it had taken the first pieces of completes once the next server has all of them.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::path::Path;

use pollux_disk::Durability;
use pollux_driver::{CompletionMode, Driver, Options};
use pollux_tests::backend::{Backend, Conduct, Plan};
use pollux_tests::control::Daemon;
use pollux_tests::frontend::{self, PAGE, Status};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::qcow2::QemuImg;
use pollux_tests::server::Server;
use rustix::process::Signal;
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// A server that forgets: its disk is in its own memory.
fn forgetful(folder: &Path, size: &str, more: &[&str]) -> Daemon {
    Daemon::start(folder, "below", &format!("memory:size={size}"), more).unwrap()
}

/// Waits until it has written so much.
fn wait_until_written(server: &Daemon, bytes: usize) {
    let written =
        || server.get(&format!("{}/stats", server.path))["total"]["bytes_written"].as_u64();
    eventually(
        || written().unwrap() >= bytes as u64,
        || format!("{:?} bytes are written", written()),
    );
}

/// The daemon in front makes eight requests of it, one after the other.
#[test]
fn a_large_write_is_whole_at_the_next_server() {
    for durability in [Durability::Volatile, Durability::Stable] {
        let folder = TempDir::new().unwrap();
        let slow = ["--limits", "bps-write=1M"];
        let below = forgetful(folder.path(), "16M", &slow);
        let socket = folder.path().join("front.sock");
        let spec = format!("vhost-user:path={}", below.disk.display());
        let front = Server::pollux(&socket, &["--disk", &spec]).unwrap();
        let driver = Driver::connect(&socket, &Options::default()).unwrap();
        let queue = driver.queue(0).unwrap();
        let write = queue.write(0, vec![0x77; 8 * MIB], durability, CompletionMode::Call);
        wait_until_written(&below, 2 * MIB);
        below.server.end_by(Signal::KILL).unwrap();
        let below = forgetful(folder.path(), "16M", &[]);
        write.wait().unwrap();
        let read = queue.read(0, vec![0; 8 * MIB], CompletionMode::Call);
        let bytes = read.wait().unwrap();
        let lost = bytes.iter().filter(|byte| **byte != 0x77).count();
        assert_eq!(lost, 0, "bytes are lost");
        drop((queue, driver));
        drop((front, below));
    }
}

/// QEMU's storage daemon says that its disk is write-through, and keeps what an image refers to in its own memory.
#[test]
fn what_is_stable_at_a_server_that_says_write_through_outlives_it() {
    let tools = peers::installed("qemu-storage-daemon").zip(QemuImg::find());
    let Some((daemon, tool)) = tools else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let (image, socket) = (folder.path().join("a.qcow2"), folder.path().join("a.sock"));
    tool.create(&image, "compat=1.1", 16 << 20).unwrap();
    let blockdev = format!(
        "driver=qcow2,file.driver=file,file.filename={}",
        image.display()
    );
    let start = || Server::qemu_storage_daemon(&daemon, &socket, &blockdev, 2).unwrap();
    let server = start();
    let driver = Driver::connect(&socket, &Options::default()).unwrap();
    let queue = driver.queue(0).unwrap();
    let (stable, call) = (Durability::Stable, CompletionMode::Call);
    queue
        .write(0, vec![0x77; MIB], stable, call)
        .wait()
        .unwrap();
    server.end_by(Signal::KILL).unwrap();
    let server = start();
    let bytes = queue.read(0, vec![0; MIB], call).wait().unwrap();
    assert!(bytes == vec![0x77; MIB], "bytes are lost");
    drop((queue, driver, server));
}

/// A part of it is at either leg's server. The second ends after the first was replaced, or while it is away.
#[test]
fn a_write_over_the_border_of_two_legs_is_whole_at_the_next_server() {
    for is_back in [true, false] {
        over_the_border(is_back);
    }
}

fn over_the_border(is_back: bool) {
    let folder = TempDir::new().unwrap();
    let first = forgetful(folder.path(), "1M", &[]);
    let second = Backend::start(Plan::default()).unwrap();
    second.conduct(Conduct::Held);
    let socket = folder.path().join("front.sock");
    let [one, two] = [&*first.disk, second.socket()].map(Path::display);
    let spec = format!("linear:[vhost-user:path={one}]+[vhost-user:path={two}]");
    let args = ["--disk", &spec, "--num-queues", "2"];
    let front = Server::pollux(&socket, &args).unwrap();
    let mut guest = frontend::Driver::connect(&socket, frontend::TWO_QUEUES).unwrap();
    let queue = &mut guest.queues[0];
    let half = (PAGE / 2) as u64;
    let at = (MIB as u64 - half) / 512;
    queue.write(0, at, 0x77);
    queue.publish_and_kick();
    second.wait_for_held(1);
    wait_until_written(&first, PAGE / 2);
    first.server.end_by(Signal::KILL).unwrap();
    assert!(front.says("closed the connection"), "{}", front.log());
    let start = || forgetful(folder.path(), "1M", &[]);
    let first = is_back.then(|| {
        let first = start();
        assert!(front.says("the disk is back"), "{}", front.log());
        first
    });
    second.conduct(Conduct::Prompt);
    second.wait_until(|seen| seen.held.is_empty() && seen.ended > 0);
    let first = first.unwrap_or_else(start);
    assert_eq!(queue.finish(), [0]);
    assert_eq!(queue.status(0), Status::Ok);
    queue.read(2, at);
    queue.publish_and_kick();
    queue.finish();
    assert!(queue.page(2) == [0x77; PAGE]);
    drop((guest, front, first));
    second.end();
}
