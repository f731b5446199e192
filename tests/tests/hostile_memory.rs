//! Frontends that take away what they have shared, or use it to hold a worker: memory that is truncated
//! under requests, call and kick descriptors that block.
//!
//! Each attacks one disk of a process that serves two with one worker. The other disk goes on meanwhile, and
//! the process afterwards; the session that did it is closed, and the log says why.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

use pollux_tests::busy::while_busy;
use pollux_tests::frontend::{
    Code, DirtyLog, Driver, GuestMemory, Logs, PAGE, SLOTS, Status, TWO_QUEUES, count, new_eventfd,
};
use pollux_tests::process::{Process, eventually};
use pollux_tests::server::{Ready, Server, pollux_binary};
use rustix::fs::{OFlags, fcntl_setfl, ftruncate};
use tempfile::TempDir;

const SIZE: u64 = 16 << 20;
const BLOCK: u64 = PAGE as u64 / 512;
const MEMORY_LOST: &str = "memory that the frontend shares is gone";

/// A process with two disks and one worker.
struct Two {
    server: Server,
    folder: TempDir,
}

impl Two {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let section = |name: &str| {
            let socket = folder.path().join(name);
            let socket = socket.display();
            format!(
                "[[disk]]\nsocket-path = \"{socket}\"\nnum-queues = 2\ndisk = \"memory:size={SIZE}\"\n"
            )
        };
        let config = folder.path().join("pollux.toml");
        std::fs::write(&config, section("attacked") + &section("other")).unwrap();
        let mut command = Command::new(pollux_binary());
        command.args(["serve", "--threads", "1", "--config"]);
        let first = folder.path().join("attacked");
        let server = Server::start(command.arg(&config), &first, Ready::LogLine).unwrap();
        Self { server, folder }
    }

    fn socket(&self, name: &str) -> PathBuf {
        let socket = self.folder.path().join(name);
        eventually(|| socket.exists(), || format!("{name} is not served"));
        socket
    }

    fn end(self) {
        let (status, log) = self.server.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
    }

    /// Runs `attack`, which loses memory, on a session of the one disk while the other works, waits until the log tells
    /// why that ended, and sees what is left: the next frontend of the disk is served.
    fn survives(self, attack: impl FnOnce(&mut Driver)) {
        let mut other = Driver::connect(&self.socket("other"), TWO_QUEUES).unwrap();
        let mut byte: u8 = 0;
        let busy = || {
            other.queues[0].round(byte);
            byte = byte.wrapping_add(1);
        };
        let (rounds, driver) = while_busy(busy, || {
            let mut driver = Driver::connect(&self.socket("attacked"), TWO_QUEUES).unwrap();
            attack(&mut driver);
            assert!(self.server.says(MEMORY_LOST), "{}", self.server.log());
            driver
        });
        assert!(rounds > 0, "the other disk went on");
        let asked = driver.frontend.number(Code::GetFeatures);
        assert!(asked.is_err(), "the session is closed");
        drop(driver);
        other.queues[1].round(byte);
        let process = Process::new(self.server.pid());
        eventually(|| process.is_asleep().unwrap(), || "somebody spins".into());
        let mut next = Driver::connect(&self.socket("attacked"), TWO_QUEUES).unwrap();
        next.queues[0].round(1);
        drop(next);
        self.end();
    }
}

fn truncate(memory: &GuestMemory, len: u64) {
    ftruncate(memory.region().fd, len).unwrap();
}

#[test]
fn data_buffers_are_truncated() {
    Two::start().survives(|driver| {
        let pages = usize::from(SLOTS);
        let data = GuestMemory::new(2 << 32, pages * PAGE).unwrap();
        driver.frontend.add_mem_reg(&data.region()).unwrap();
        let queue = &mut driver.queues[0];
        for round in 0..2 {
            for slot in 0..SLOTS {
                let page = usize::from(slot) * PAGE;
                queue.read_to(slot, u64::from(slot) * BLOCK, data.guest(page));
            }
            queue.publish_and_kick();
            if round == 0 {
                truncate(&data, 0);
            }
        }
        // The rings are where they were: what was taken has come back, unless the session was over first.
    });
}

/// Memory of the rings goes, from `from` on.
fn rings_are_truncated(from: u64) {
    Two::start().survives(|driver| {
        write_all(driver);
        truncate(&driver.memory, from);
        // From here on this process must not touch it either.
        rustix::io::write(&driver.queues[0].kick, &1u64.to_ne_bytes()).unwrap();
    });
}

#[test]
fn all_of_the_rings_is_truncated() {
    rings_are_truncated(0);
}

#[test]
fn the_available_ring_is_truncated() {
    rings_are_truncated(0x8000);
}

#[test]
fn the_used_ring_is_truncated() {
    rings_are_truncated(0x1_0000);
}

/// All of queue 0's slots, to be written.
fn write_all(driver: &mut Driver) {
    let queue = &mut driver.queues[0];
    for slot in 0..SLOTS {
        queue.write(slot, u64::from(slot) * BLOCK, 7);
    }
    queue.publish_and_kick();
}

/// A copy of the one that the server has made: that is sealed, and nobody can truncate it.
#[test]
fn the_record_of_what_is_in_flight_is_truncated() {
    Two::start().survives(|driver| {
        let made = driver.keep_record().unwrap();
        made.file.set_len(0).unwrap_err();
        let mut blank = vec![];
        (&made.file).read_to_end(&mut blank).unwrap();
        let copy = GuestMemory::new(0, blank.len()).unwrap();
        copy.put(0, &blank);
        let (frontend, file) = (&driver.frontend, copy.region().fd);
        frontend
            .tell(Code::SetInflightFd, &made.description, &[file])
            .unwrap();
        driver.queues[0].round(1);
        truncate(&copy, 0);
        write_all(driver);
    });
}

#[test]
fn the_log_of_dirty_pages_is_truncated() {
    Two::start().survives(|driver| {
        let log = DirtyLog::below(2 << 32).unwrap();
        log.pass_to(&driver.frontend).unwrap();
        driver.set_logging(Logs::Everything).unwrap();
        driver.queues[0].round(1);
        truncate(log.memory(), 0);
        write_all(driver);
    });
}

/// What the kernel copies raises no signal: the request fails, and that is all.
#[test]
fn data_of_a_file_disk_is_truncated() {
    for engine in ["io_uring", "threads"] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("disk.img");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(SIZE)
            .unwrap();
        let socket = folder.path().join("disk.sock");
        let spec = format!("file:path={},engine={engine}", image.display());
        let server = Server::pollux(&socket, &["--disk", &spec, "--num-queues", "2"]).unwrap();
        let mut driver = Driver::connect(&socket, TWO_QUEUES).unwrap();
        driver.queues[1].round(3);
        let data = GuestMemory::new(2 << 32, PAGE).unwrap();
        driver.frontend.add_mem_reg(&data.region()).unwrap();
        truncate(&data, 0);
        let queue = &mut driver.queues[0];
        queue.read_to(0, 0, data.guest(0));
        queue.publish_and_kick();
        queue.finish();
        assert_eq!(queue.status(0), Status::IoErr, "{engine}");
        driver.queues[1].round(4);
        let (status, log) = server.terminate().unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

/// Clears `O_NONBLOCK` of `descriptor` for as long as `meanwhile` lasts, from two threads.
fn kept_blocking(descriptor: &OwnedFd, meanwhile: impl FnOnce()) {
    let clear = || fcntl_setfl(descriptor, OFlags::empty()).unwrap();
    while_busy(clear, || while_busy(clear, meanwhile));
}

#[test]
fn a_saturated_eventfd_that_blocks_holds_nobody() {
    let two = Two::start();
    let call = new_eventfd().unwrap();
    let [mut other, mut driver] =
        ["other", "attacked"].map(|name| Driver::connect(&two.socket(name), TWO_QUEUES).unwrap());
    let frontend = &driver.frontend;
    frontend
        .vring_fd(Code::SetVringCall, 0, Some(call.as_fd()))
        .unwrap();
    let fill = || {
        count(&call);
        rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).is_ok()
    };
    eventually(fill, || "it cannot be filled".into());
    let queue = &mut driver.queues[0];
    kept_blocking(&call, || {
        // For each request a call.
        for byte in 0..200 {
            queue.ask_for_call();
            queue.round(byte);
            other.queues[0].round(byte);
        }
    });
    drop((driver, other));
    two.end();
}
