//! The sandbox of a daemon with a disk of another daemon: more memory for its requests may be needed at any time, on
//! any thread that asks the server.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::path::Path;

use pollux_tests::frontend::{Driver, GuestMemory, Plan, Status};
use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use rustix::process::Signal;
use tempfile::TempDir;

/// As many as a queue holds, but for one.
const READS: u16 = 63;
/// A request that is not done in slices. What the daemon has for such requests at first, 64 MiB, has room for one queue
/// full of them, and for little else.
const MIB: u32 = 1 << 20;

/// A daemon over another one, with a guest that has as many regions of memory as the server takes.
struct Scene {
    folder: TempDir,
    daemon: Server,
    driver: Driver,
    _small: Vec<GuestMemory>,
    /// The last one, which the server refuses: the daemon has a region of its own.
    refused: GuestMemory,
}

fn below(folder: &Path, disk: &str) -> Server {
    Server::pollux(&folder.join("below.sock"), &["--disk", disk]).unwrap()
}

impl Scene {
    fn new(disk: &str, queues: u16) -> (Self, Server) {
        let folder = TempDir::new().unwrap();
        let below = below(folder.path(), disk);
        let spec = format!("vhost-user:path={}", below.socket().display());
        let options = ["--disk", &spec, "--sandbox", "require"];
        let daemon = Server::pollux(&folder.path().join("disk.sock"), &options).unwrap();
        let driver = Driver::connect(daemon.socket(), Plan { queues, without: 0 }).unwrap();
        let region = |guest, len| {
            let memory = GuestMemory::new(guest, len).unwrap();
            driver.frontend.add_mem_reg(&memory.region()).unwrap();
            memory
        };
        let small = (1..508).map(|number| region((1 << 40) + (number << 20), 4096));
        let scene = Self {
            _small: small.collect(),
            refused: region(1 << 41, usize::from(READS) * MIB as usize),
            folder,
            daemon,
            driver,
        };
        (scene, below)
    }

    /// Fills the queues with reads.
    fn read(&mut self) {
        for queue in &mut self.driver.queues {
            for slot in 0..READS {
                let at = usize::from(slot) * MIB as usize;
                queue.read_over(slot, 0, &[(self.refused.guest(at), MIB)]);
            }
            queue.publish_and_kick();
        }
    }

    fn ends(mut self, below: Server) {
        for queue in &mut self.driver.queues {
            let mut ended = 0;
            eventually(
                || {
                    ended += queue.take().len();
                    ended == usize::from(READS)
                },
                || self.daemon.log(),
            );
            assert!((0..READS).all(|slot| queue.status(slot) == Status::Ok));
        }
        drop(self.driver);
        for server in [self.daemon, below] {
            let (status, log) = server.terminate().unwrap();
            assert!(status.success(), "{status}: {log}");
        }
    }
}

#[test]
fn a_worker_takes_more_memory_for_requests() {
    let (mut scene, below) = Scene::new("fault:delay=300ms,on=null:size=16M", 2);
    scene.read();
    scene.ends(below);
}

#[test]
fn more_memory_is_taken_for_the_rings_at_a_server_that_comes_back() {
    let folder = TempDir::new().unwrap();
    let requests = folder.path().join("requests");
    let fault = format!(
        "fault:delay=3600s,op=read,log={},on=null:size=16M",
        requests.display()
    );
    let (mut scene, killed) = Scene::new(&fault, 1);
    scene.read();
    let taken = || {
        fs::read_to_string(&requests)
            .unwrap_or_default()
            .lines()
            .count()
    };
    eventually(|| taken() >= usize::from(READS), || killed.log());
    killed.end_by(Signal::KILL).unwrap();
    let next = below(scene.folder.path(), "null:size=16M");
    scene.ends(next);
}
